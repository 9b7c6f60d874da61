"""TLS for the control endpoint: an own CA, kept in a Secret so that every operator serves under the same one."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret

from robustrl_operator.kubernetes.pod_factory import CA_CONFIG_MAP
from robustrl_operator.kubernetes.settings import Settings

SECRET = "robustrl-operator-tls"
LIFETIME = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts."""

    ca: str
    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """A server's TLS context."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_text(self.certificate + self.key)
            context.load_cert_chain(path)
        return context


def make(host: str) -> Certificates:
    """A new CA, and a server certificate for `host` under it."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "robustrl-ca")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "robustrl-operator")])
    ca = _builder(ca_name, ca_name, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    alternatives = x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName(f"{host}.cluster.local")])
    leaf = _builder(name, ca_name, key).add_extension(alternatives, critical=False)
    return Certificates(
        ca=_pem(ca.sign(ca_key, hashes.SHA256())),
        certificate=_pem(leaf.sign(ca_key, hashes.SHA256())),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


async def ensure(client: AsyncClient, settings: Settings) -> Certificates:
    """The certificates in the Secret; made and stored by the first operator that finds none."""
    try:
        return _read(await client.get(Secret, SECRET, namespace=settings.namespace))
    except ApiError as error:
        if error.status.code != 404:
            raise
    made = make(settings.host)
    data = {"ca.crt": made.ca, "tls.crt": made.certificate, "tls.key": made.key}
    secret = Secret(metadata=ObjectMeta(name=SECRET, namespace=settings.namespace), type="Opaque", stringData=data)
    try:
        await client.create(secret)
    except ApiError as error:
        if error.status.code != 409:
            raise
        return _read(await client.get(Secret, SECRET, namespace=settings.namespace))
    return made


def _read(secret: Secret) -> Certificates:
    data = {name: base64.b64decode(value).decode() for name, value in (secret.data or {}).items()}
    return Certificates(data["ca.crt"], data["tls.crt"], data["tls.key"])


async def hand_out(client: AsyncClient, namespace: str, ca: str) -> None:
    """Put the CA where the pods of a namespace mount it from."""
    meta = ObjectMeta(name=CA_CONFIG_MAP, namespace=namespace)
    await client.apply(ConfigMap(metadata=meta, data={"ca.crt": ca}), force=True)
