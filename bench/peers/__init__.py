"""The peers' configurations: templates in which @NAMES@ are filled in by bench.subjects."""
