"""The router's settings: one table, one way to load it, frozen values."""

from router.settings.groups import (
    Address,
    Auth,
    Discovery,
    Limits,
    Listeners,
    Logs,
    Routing,
    Settings,
    Time,
    Tls,
)
from router.settings.loading import Loaded, load
from router.settings.problems import Origin, Problem, SettingsError, Source

__all__ = [
    "Address",
    "Auth",
    "Discovery",
    "Limits",
    "Listeners",
    "Loaded",
    "Logs",
    "Origin",
    "Problem",
    "Routing",
    "Settings",
    "SettingsError",
    "Source",
    "Time",
    "Tls",
    "load",
]
