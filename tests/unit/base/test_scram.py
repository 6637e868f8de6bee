from __future__ import annotations

from base64 import b64decode

import pytest
from scramp import ScramMechanism as Reference

from ottla.base.scram import ScramMechanism, derive_credential, salt_password


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_credential_equals_the_one_that_scramp_derives(mechanism: ScramMechanism) -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")

    salted = salt_password(mechanism, "pencil", salt, 4096)
    credential = derive_credential(mechanism, salted, salt, 4096)

    reference = Reference(mechanism.sasl_name).make_auth_info("pencil", 4096, salt)
    assert (salt, credential.stored_key, credential.server_key, 4096) == reference


def test_representation_contains_no_secrets() -> None:
    credential = derive_credential(ScramMechanism.SHA_256, b"salted", b"the salt", 4096)

    assert repr(credential) == "ScramCredential(iterations=4096)"
