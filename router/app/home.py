"""Builds the home page on the base domain, where the operator wants it."""

from __future__ import annotations

from router.app.access import Access
from router.app.sandboxes import Sandboxes
from router.home.page import SandboxesPage
from router.home.rights import Openables
from router.proxy.admission import Admission
from router.proxy.at_home import AtHome
from router.proxy.options import ProxyOptions
from router.proxy.ports import WakeDesk
from router.proxy.wake_rules import WakeRules
from router.settings import Settings


def build_home(
    settings: Settings,
    *,
    admission: Admission,
    sandboxes: Sandboxes,
    access: Access,
    wakes: WakeDesk | None,
    options: ProxyOptions,
) -> AtHome | None:
    """Returns what answers on the base domain itself, None when nothing does."""
    if not settings.browsers.home or sandboxes.index is None:
        return None
    routing = settings.routing
    assert routing.base_domain is not None
    openables = Openables(
        grants=access.grants,
        known=sandboxes.known,
        names=sandboxes.source.names,
        default_port=routing.default_port,
        is_wakeable=WakeRules(options).concern,
    )
    page = SandboxesPage(
        openables=openables,
        find=sandboxes.index.find,
        desk=access.sessions,
        wakes=wakes,
        wake_timeout_s=settings.waking.wake_timeout_s,
        default_namespace=routing.default_namespace,
        base_domain=routing.base_domain,
    )
    return AtHome(
        base_domain=routing.base_domain,
        admission=admission,
        page=page,
        desk=access.sessions,
        rules=options.sessions,
    )
