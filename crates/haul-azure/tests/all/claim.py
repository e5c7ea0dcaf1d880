"""Checks a claim beside one of Microsoft's library for Python: `claim.py CERTIFICATE KEY CLAIM SHOWN`, made for the client `app`."""

import sys
import time

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from msal.oauth2cli.assertion import JwtAssertionCreator

certificate_file, key_file, claim, shown = sys.argv[1:5]
address = "https://login.example/t/oauth2/v2.0/token"
text = open(certificate_file).read()
certificate = x509.load_pem_x509_certificate(text.encode())
body = "".join(line for line in text.splitlines() if not line.startswith("-----"))

# The library's own, as it makes them of a certificate.
headers = {"x5c": [body]} if shown == "true" else None
creator = JwtAssertionCreator(
    open(key_file).read(), algorithm="PS256", sha256_thumbprint=certificate.fingerprint(hashes.SHA256()).hex(), headers=headers
)
theirs = creator.create_normal_assertion(audience=address, issuer="app")

ours = jwt.get_unverified_header(claim)
expected = jwt.get_unverified_header(theirs)
# The library pads it, which RFC 7515 doesn't.
expected["x5t#S256"] = expected["x5t#S256"].rstrip("=")
if shown == "true":
    assert ours["x5c"][:1] == expected["x5c"] and len(ours["x5c"]) == 2, ours
    del ours["x5c"], expected["x5c"]
assert ours == expected, (ours, expected)


def said(token):
    return jwt.decode(token, certificate.public_key(), algorithms=["PS256"], audience=address, issuer="app")


ours, expected = said(claim), said(theirs)
assert ours.keys() >= expected.keys(), (ours, expected)
assert ours["sub"] == expected["sub"] == "app"
assert 0 < ours["exp"] - time.time() <= 600 and ours["jti"], ours
print("passed")
