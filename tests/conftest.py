"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

from ottla.wire.codec import set_strict

# A response with a field that no version of its API has is a mistake that production forgives.
set_strict(True)

# Machines that run tests are shared, and slow at times: a limit per example would fail at random.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")
