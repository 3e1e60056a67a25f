from router.errors import RouterError
from router.settings.table import TABLE
from router.telemetry.metric_labels import (
    CERTIFICATE_FILES,
    CONNECT_BUCKETS_S,
    FIRST_BYTE_BUCKETS_S,
    REQUEST_BUCKETS_S,
    ROUTER_ERROR_CODES,
    SETTING_OF_SOURCE,
    WAIT_BUCKETS_S,
)


def every_kind_of(error: type[RouterError]) -> set[type[RouterError]]:
    return {error}.union(*(every_kind_of(child) for child in error.__subclasses__()))


def test_every_code_of_the_error_tree_has_a_series():
    codes = {error.code for error in every_kind_of(RouterError)}

    assert set(ROUTER_ERROR_CODES) == codes


def test_files_are_labelled_by_the_settings_that_name_them():
    assert {*SETTING_OF_SOURCE.values(), *CERTIFICATE_FILES} <= set(TABLE)


def test_buckets_grow():
    for buckets in (CONNECT_BUCKETS_S, FIRST_BYTE_BUCKETS_S, REQUEST_BUCKETS_S, WAIT_BUCKETS_S):
        assert buckets == tuple(sorted(set(buckets)))
