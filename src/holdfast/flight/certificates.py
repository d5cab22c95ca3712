"""An authority of one's own, and the certificates it signs.

    security/
      authority.pem          what everybody trusts
      authority-key.pem      signs; needed only to make more
      here/, east/, ...      what each machine has: certificate.pem, key.pem, authority.pem

The first alternative name of a certificate says what its owner may do (roles.py); the addresses
after it are those it may answer at.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from holdfast.flight.roles import Role, identity
from holdfast.flight.secrets import SecurityError, read_file, read_secret

AUTHORITY_DAYS = 3_650
# Machines whose clocks differ must agree that a certificate is valid.
_BEFORE = datetime.timedelta(hours=1)
# From then on a certificate that expires is warned of.
_SOON = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Authority:
    """Whoever signs the certificates of a deployment."""

    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes

    @classmethod
    def at(cls, directory: Path, name: str) -> Authority:
        """The authority whose files are in a directory; made if it has none."""
        certificate, key = directory / "authority.pem", directory / "authority-key.pem"
        if not certificate.exists() and not key.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = cls._make(name)
            _write(key, _private(made.key), 0o600)
            _write(certificate, _public(made.certificate), 0o644)
        try:
            found = x509.load_pem_x509_certificate(read_file(certificate))
            secret = serialization.load_pem_private_key(read_secret(key), None)
        except ValueError as error:
            raise SecurityError(f"{directory}: its authority cannot be read: {error}") from None
        if not isinstance(secret, ec.EllipticCurvePrivateKey):
            raise SecurityError(f"{key}: an elliptic curve key is needed, of which init makes one")
        return cls(found, secret)

    @classmethod
    def _make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(f"Holdfast authority of {name}")
        builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    def issue(
        self, directory: Path, role: Role, who: str, hosts: Sequence[str], days: int
    ) -> x509.Certificate:
        """Put a new certificate, its key and the authority's certificate into a directory."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.UniformResourceIdentifier(identity(role, who)), *map(_alternative, hosts)]
        issuer = self.certificate.subject
        builder = _builder(_named(f"Holdfast {role.value} {who}"), issuer, key.public_key(), days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs_certificates=False), True)
        made = builder.sign(self.key, hashes.SHA256())
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate last: who finds a new one finds its key as well.
        _write(directory / "authority.pem", _public(self.certificate), 0o644)
        _write(directory / "key.pem", _private(key), 0o600)
        _write(directory / "certificate.pem", _public(made), 0o644)
        return made


def issued(directory: Path) -> x509.Certificate | None:
    """The certificate in a directory, if there is one."""
    path = directory / "certificate.pem"
    if not path.exists():
        return None
    try:
        return x509.load_pem_x509_certificate(read_file(path))
    except ValueError as error:
        raise SecurityError(f"{path}: it is no certificate: {error}") from None


def fits(certificate: x509.Certificate, authority: Authority, hosts: Sequence[str]) -> bool:
    """Whether a certificate is the authority's, is for these hosts, and is valid for a while."""
    try:
        certificate.verify_directly_issued_by(authority.certificate)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:
        return False
    now = datetime.datetime.now(datetime.UTC)
    lasts = certificate.not_valid_after_utc - now > datetime.timedelta(days=30)
    return lasts and set(map(_alternative, hosts)) <= set(found)


def check_dates(path: Path, now: datetime.datetime | None = None) -> str | None:
    """SecurityError if a certificate in a file is not valid now; a warning if it soon will not be.

    Nobody could connect, and every caller would be told only that the handshake failed.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        found = x509.load_pem_x509_certificates(read_file(path))
    except ValueError as error:
        raise SecurityError(f"{path}: it is no certificate: {error}") from None
    first = max(each.not_valid_before_utc for each in found)
    last = min(each.not_valid_after_utc for each in found)
    renew = "make a new one (holdfast security init) and put it there"
    if now > last:
        raise SecurityError(f"{path}: it expired on {last:%Y-%m-%d at %H:%M} UTC; {renew}")
    if now < first:
        raise SecurityError(
            f"{path}: it is valid only from {first:%Y-%m-%d at %H:%M} UTC on; look at this "
            f"machine's clock, or {renew}"
        )
    if last - now < _SOON:
        return f"{path}: it expires on {last:%Y-%m-%d at %H:%M} UTC; {renew} before"
    return None


def check_pair(certificate: bytes, key: bytes) -> None:
    """SecurityError unless these are a certificate and its key, PEM."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        own = serialization.load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError) as error:
        raise SecurityError(f"the certificate or its key cannot be read: {error}") from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*form) != own.public_bytes(*form):
        raise SecurityError("the key is not that of the certificate")


def _named(text: str) -> x509.Name:
    # A common name holds 64 characters.
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file as a whole; others never see more of it than ``mode`` lets them."""
    hidden = path.with_name(f".{path.name}.part")
    hidden.unlink(missing_ok=True)
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    hidden.replace(path)
