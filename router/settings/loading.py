"""From flags, environment and file to Settings: who wins, and everything that is wrong, at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.settings import groups
from router.settings.advice import advise
from router.settings.candidate import Candidate
from router.settings.config_file import ConfigFile, read_config_file
from router.settings.problems import DEFAULT, Origin, Problem, SettingsError, Source
from router.settings.rules import check
from router.settings.table import (
    CONFIG_VARIABLE,
    FILE_KEYS,
    GROUPS,
    OPEN_DOOR_VARIABLE,
    SERVICE_LINK,
    STATIC_TOKEN_VARIABLE,
    TABLE,
    Setting,
)
from router.settings.values import BadValueError, Raw, boolean

GROUP_TYPES: dict[str, type] = {
    "listeners": groups.Listeners,
    "tls": groups.Tls,
    "discovery": groups.Discovery,
    "routing": groups.Routing,
    "auth": groups.Auth,
    "browsers": groups.Browsers,
    "waking": groups.Waking,
    "time": groups.Time,
    "limits": groups.Limits,
    "logs": groups.Logs,
}
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
SHOWN_CHARACTERS = 80

Given = tuple[Raw, Origin]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, where each came from (by key), and what is legal but probably not meant."""

    settings: groups.Settings
    origins: Mapping[str, Origin]
    warnings: tuple[Problem, ...]


def load(
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    *,
    in_cluster: bool = False,
    cores: int = 1,
) -> Loaded:
    """Returns the settings that hold: flags (by key, without dashes) > environment > file > defaults.

    Without `file` the variable SANDBOX_ROUTER_CONFIG may name one. `in_cluster` and `cores` are facts about this
    process that the caller found out. Raises SettingsError, which names every problem.
    """
    flags, environment = flags or {}, environment or {}
    if unknown := set(flags) - set(FILE_KEYS):
        raise TypeError(f"no such flags: {sorted(unknown)}")
    config = _config_file(file, environment)
    reading = _Reading(
        problems=list(config.problems), environment=environment, in_cluster=in_cluster
    )
    for row in TABLE.values():
        reading.take(row, flags, config)
    reading.settle_auth()
    reading.settle_token()
    reading.settle_automatic(cores)
    if config.readable:
        reading.problems += check(reading.candidate)
    if reading.problems:
        raise SettingsError(reading.problems)
    return reading.loaded()


def _config_file(file: Path | None, environment: Mapping[str, str]) -> ConfigFile:
    if file is None and environment.get(CONFIG_VARIABLE):
        file = Path(environment[CONFIG_VARIABLE])
    return ConfigFile() if file is None else read_config_file(file)


def _from_flags(row: Setting, flags: Mapping[str, str]) -> list[Given]:
    return [(flags[row.key], Origin(Source.FLAG, row.flag))] if row.key in flags else []


def _from_environment(row: Setting, environment: Mapping[str, str]) -> list[Given]:
    """Returns the one variable that counts; an empty one counts as not set, as templates leave them behind."""
    for name in row.legacy if row.secret else (row.variable, *row.legacy):
        text = environment.get(name, "")
        # A Service called sandbox-router-default makes SANDBOX_ROUTER_DEFAULT_PORT=tcp://...
        if text and not (name.endswith("_PORT") and SERVICE_LINK.match(text)):
            return [(text, Origin(Source.ENVIRONMENT, name))]
    return []


class _Reading:
    """The values read so far, with the problems met on the way."""

    def __init__(
        self, *, problems: list[Problem], environment: Mapping[str, str], in_cluster: bool
    ) -> None:
        self.problems = problems
        self.environment = environment
        self.in_cluster = in_cluster
        self.candidate = Candidate()

    def take(self, row: Setting, flags: Mapping[str, str], config: ConfigFile) -> None:
        """Reads every source of one setting, so that a bad value is named even where a stronger one hides it."""
        given = _from_flags(row, flags) + _from_environment(row, self.environment)
        if row.key in config.given:
            given.append(config.given[row.key])
        if not given and row.default is not None:
            given = [(row.default, DEFAULT)]
        for raw, origin in reversed(given):
            self._read(row, raw, origin)

    def _read(self, row: Setting, raw: Raw, origin: Origin) -> None:
        try:
            self.candidate.accept(row.key, row.kind.read(raw), origin)
        except BadValueError as bad:
            self.candidate.give_up(row.key)
            about = f"{row.key} = {_excerpt(row, raw)}"
            self.problems.append(Problem(about, origin, bad.wrong, bad.right))

    def settle_auth(self) -> None:
        """Lets the older deployments' two switches decide, only where `auth` is said nowhere: they can't weaken it."""
        if not self.candidate.is_open("auth"):
            return
        switches = {}
        if self.environment.get(STATIC_TOKEN_VARIABLE):
            switches["static"] = STATIC_TOKEN_VARIABLE
        if self._door_is_open():
            switches["none"] = OPEN_DOOR_VARIABLE
        for mode, variable in switches.items():
            self.candidate.accept("auth", (mode,), Origin(Source.ENVIRONMENT, variable))
        if len(switches) > 1:
            self.candidate.give_up("auth")
            self.problems.append(
                Problem(
                    f"{STATIC_TOKEN_VARIABLE} and {OPEN_DOOR_VARIABLE}",
                    Origin(Source.ENVIRONMENT),
                    "ask for a token and for none",
                    "set only one of them",
                )
            )

    def _door_is_open(self) -> bool:
        text = self.environment.get(OPEN_DOOR_VARIABLE, "")
        try:
            return bool(boolean().read(text)) if text else False
        except BadValueError as bad:
            origin = Origin(Source.ENVIRONMENT, OPEN_DOOR_VARIABLE)
            self.candidate.give_up("auth")
            self.problems.append(
                Problem(f"auth = {text[:SHOWN_CHARACTERS]!r}", origin, bad.wrong, bad.right)
            )
            return False

    def settle_token(self) -> None:
        """Forgets a token that decides nothing: a named file wins, and without `static` nothing compares it."""
        values = self.candidate.values
        if values.get("static-token-file") is not None or "static" not in values.get("auth", ()):
            self.candidate.accept("static-token", None, DEFAULT)

    def settle_automatic(self, cores: int) -> None:
        """Replaces what stands for "find out" by what was found out."""
        candidate = self.candidate
        if self.in_cluster and candidate.is_open("discovery"):
            candidate.accept("discovery", "kubernetes", DEFAULT)
        if candidate.values.get("workers", 1) is None:
            candidate.accept("workers", max(1, cores), candidate.origins["workers"])
        if candidate.values.get("tracing", False) is None:
            endpoint = bool(self.environment.get(OTLP_VARIABLE))
            found = Origin(Source.ENVIRONMENT, OTLP_VARIABLE)
            candidate.accept(
                "tracing", endpoint, found if endpoint else candidate.origins["tracing"]
            )

    def loaded(self) -> Loaded:
        """Returns the finished settings."""
        values, origins = self.candidate.values, self.candidate.origins
        parts: dict[str, Any] = {
            group: GROUP_TYPES[group](**{row.attribute: values[row.key] for row in rows})
            for group, rows in GROUPS.items()
        }
        warnings = tuple(advise(self.candidate, self.environment))
        return Loaded(groups.Settings(**parts), dict(origins), warnings)


def _excerpt(row: Setting, raw: Raw) -> str:
    """Returns a bad value as a message may print it: short, escaped, without secrets."""
    if row.secret:
        return "(hidden)"
    text = raw if isinstance(raw, str) else ", ".join(raw)
    text = re.sub(r"//[^/@]*@", "//(hidden)@", text)
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")
