import logging
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from router.server import certificate_expiry
from router.server.certificate_expiry import CertificateExpiry, earliest_end

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def certificate(ends, *, pad=0):
    """Returns a self-signed certificate in PEM; `pad` makes its name longer."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.COMMON_NAME, "router")]
    names += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60)] * pad
    name = x509.Name(names)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2001, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


# --- reading ---


@pytest.mark.parametrize(
    "ends",
    [
        datetime(2026, 12, 1, 12, 30, 59, tzinfo=UTC),
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),  # the last that has two digits of a year
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("pad", [0, 1, 5])
def test_the_end_is_read_whatever_form_the_time_and_the_lengths_have(ends, pad):
    assert earliest_end(certificate(ends, pad=pad)) == ends.timestamp()


def test_the_first_end_of_a_chain_counts():
    soon, late = NOW + timedelta(days=3), NOW + timedelta(days=300)

    assert earliest_end(certificate(late) + b"text\n" + certificate(soon)) == soon.timestamp()


def test_real_chains_are_read_as_the_library_reads_them():
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    issued = authority.issue_cert("router.example", key_type=trustme.KeyType.RSA)
    pem = issued.cert_chain_pems[0].bytes()

    expected = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert earliest_end(pem) == expected.timestamp()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_has_no_end(pem):
    assert earliest_end(pem) is None


# --- saying ---


@pytest.fixture
def expiry():
    return CertificateExpiry(clock=NOW.timestamp)


def loaded(expiry, caplog, *, days):
    ends_at = (NOW + timedelta(days=days)).timestamp()
    with caplog.at_level(logging.INFO, logger="sandbox_router.server"):
        expiry.loaded({"tls-cert-file": ends_at})
    return [(record.levelname, record.message, record.fields) for record in caplog.records]


def test_a_certificate_that_ends_within_two_weeks_is_warned_of_when_it_is_loaded(expiry, caplog):
    [(level, message, fields)] = loaded(expiry, caplog, days=13.5)

    assert (level, message) == ("WARNING", "certificate expires soon: renew it")
    assert fields == {
        "setting": "tls-cert-file",
        "not_after": "2026-12-14T12:00:00Z",
        "days_left": 13,
    }


def test_an_expired_certificate_that_is_loaded_is_an_error(expiry, caplog):
    [(level, message, fields)] = loaded(expiry, caplog, days=-1)

    assert (level, message) == ("ERROR", "certificate has expired: renew it now")
    assert fields["days_left"] == -1


def test_a_certificate_with_time_left_is_not_talked_about(expiry, caplog):
    assert loaded(expiry, caplog, days=15) == []
    assert expiry.not_after == {"tls-cert-file": (NOW + timedelta(days=15)).timestamp()}


async def test_it_is_said_again_every_day(expiry, caplog, monkeypatch):
    loaded(expiry, caplog, days=5)
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise TimeoutError

    monkeypatch.setattr(certificate_expiry.asyncio, "sleep", sleep)
    with pytest.raises(TimeoutError):
        await expiry.run()

    assert slept == [86_400.0] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


def test_its_repr_shows_the_ends(expiry):
    expiry.loaded({"tls-cert-file": 4e9})

    assert repr(expiry) == "<CertificateExpiry {'tls-cert-file': 4000000000.0}>"
