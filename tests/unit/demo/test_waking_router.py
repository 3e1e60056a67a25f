"""The sleeping demo's router: the flags of serve, and what serve refuses."""

import pytest

from router.demo import waking_router
from router.demo.switch_waker import SwitchWaker
from router.settings import SettingsError


@pytest.fixture
def flags(tmp_path):
    path = tmp_path / "sandboxes.yaml"
    path.write_text("sandboxes: []\n")
    return ["--discovery", "file", "--sandboxes-file", str(path), "--auth", "none"]


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch):
    monkeypatch.setattr(waking_router.os, "environ", {})


def test_its_settings_are_those_of_serve_with_waking_on(flags):
    settings = waking_router.settings_of(flags)
    assert settings.waking.wake == "all"
    assert settings.discovery.discovery == "file"
    assert settings.listeners.workers == 1


def test_what_serve_refuses_it_refuses(flags):
    with pytest.raises(SettingsError):
        waking_router.settings_of([*flags, "--wake", "all"])
    with pytest.raises(ValueError, match="shorter"):
        waking_router.settings_of([*flags, "--path-prefix"])


def test_it_serves_with_the_demos_waker(flags, monkeypatch):
    served = []

    def serve(settings, *, waker):
        served.append((settings.waking.wake, waker))
        return 3

    monkeypatch.setattr(waking_router.app, "run", serve)
    assert waking_router.main(["/run/switch", *flags]) == 3
    ((wake, waker),) = served
    assert wake == "all"
    assert isinstance(waker, SwitchWaker)
    assert repr(waker) == "<SwitchWaker /run/switch>"
