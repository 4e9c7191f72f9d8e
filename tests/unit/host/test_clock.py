from datetime import UTC, datetime, timedelta, timezone

import pytest

from fairtrial.host.clock import monotonic_s, rfc3339, stamp, utc_now

MOMENT = datetime(2026, 11, 29, 13, 1, 0, 250, tzinfo=UTC)


def test_now_is_aware_and_in_utc() -> None:
    assert utc_now().utcoffset() == timedelta(0)


def test_a_stamp_fits_a_file_name() -> None:
    assert stamp(MOMENT) == "20261129T130100Z"


def test_a_record_time_has_one_length_and_sorts_by_time() -> None:
    assert rfc3339(MOMENT) == "2026-11-29T13:01:00.000250Z"
    assert rfc3339(MOMENT.replace(microsecond=0)) == "2026-11-29T13:01:00.000000Z"
    assert datetime.fromisoformat(rfc3339(MOMENT)) == MOMENT


def test_other_zones_are_rendered_in_utc() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=-5)))
    assert (stamp(there), rfc3339(there)) == (stamp(MOMENT), rfc3339(MOMENT))


@pytest.mark.parametrize("render", [stamp, rfc3339])
def test_a_moment_without_a_zone_is_refused(render) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(ValueError, match="without a time zone"):
        render(MOMENT.replace(tzinfo=None))


def test_monotonic_time_does_not_go_back() -> None:
    assert monotonic_s() <= monotonic_s()
