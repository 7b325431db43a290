"""Receipts: all vectors verify; what the signature binds is refused when changed, what it does not bind is named."""

import copy
import json

import blake3
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kiokulab.emem import receipts

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PIN = receipts.b32(KEY.public_key().public_bytes_raw())
TEXT = "The kettle is blue."


def make(version=2, **changes):
    return receipts.sign(
        {
            "request_id": "01A",
            "served_at": "2026-01-01T00:00:00Z",
            "primitive": "emem.memory_file",
            "cells": ["/memories/membench/a.md"],
            "fact_cids": [receipts.file_cid(TEXT)],
            "preimage_version": version,
            "responder_key_epoch": 0,
            "intent": "why",
            "cost": {"credits": 0},
            "schema_cid": "s",
            "registry_cid": "r",
            "source_versions": {"schema_cid": "s", "registry_cid": "r", "bands_cid": "b", "sources_cid": "o"},
            "scope": {"user_id": "u1", "run_id": "r9"},
            "as_of": {"valid_time": 1767225600},
            "edge_cids": ["e2", "e1"],
            "field": {"aoi_cid": "x", "derivation_cid": "y"},
            "merkle_proof": {
                "leaf_index": 0,
                "path": [],
                "root": list(blake3.blake3(b"\0" + b"?").digest()),
                "version": 1,
            },
            **changes,
        },
        KEY,
    )


def without_proof(**changes):
    return make(merkle_proof=None, **changes)


@pytest.fixture(scope="module")
def vectors(shared):
    return json.loads(shared("emem/receipt-vectors.json").read_text())


def test_the_real_receipt_verifies_to_its_published_digest(vectors):
    real = vectors["receipt_v2_real"]
    found = receipts.check(real["receipt"])
    assert found.ok and found.digest_hex == real["expected"]["preimage_blake3_hex"] and not found.pinned


def test_every_digest_vector(vectors):
    by_field = {
        "source_versions": receipts.manifest_digest,
        "edge_cids": receipts.edges_digest,
        "scope": receipts.scope_digest,
        "as_of": receipts.as_of_digest,
    }
    for vector in vectors["sub_digests"]:
        assert by_field[vector["field"]](vector["value"]).decode() == vector["expected_blake3_hex"]
    for vector in vectors["preimage_v1_digests"]:
        assert (
            blake3.blake3(receipts.preimage({**vector, "preimage_version": 1})).hexdigest()
            == vector["expected_blake3_hex"]
        )
    assert receipts.file_cid(vectors["file_cid"]["body_utf8"]) == vectors["file_cid"]["expected"]


@pytest.mark.parametrize(
    "field,value",
    [
        ("request_id", "01B"),
        ("served_at", "2026-01-01T00:00:01Z"),
        ("primitive", "emem.recall"),
        ("cells", ["/memories/membench/b.md"]),
        ("cells", []),
        ("fact_cids", ["x"]),
        ("scope", {"user_id": "u2"}),
        ("scope", None),
        ("as_of", {"valid_time": 1}),
        ("edge_cids", ["e3"]),
        ("source_versions", {}),
        ("field", {"aoi_cid": "x", "derivation_cid": "z"}),
        ("field", None),
        ("preimage_version", 1),
        ("preimage_version", None),
        ("merkle_proof", {"leaf_index": 0, "path": [], "root": [0] * 32}),
    ],
)
def test_a_changed_field_that_the_signature_binds_is_refused(field, value):
    receipt = without_proof()
    assert receipts.check(receipt, pinned_key=PIN).ok
    assert not receipts.check({**receipt, field: value}, pinned_key=PIN).ok


@pytest.mark.parametrize("field,value", [("cost", {"credits": 9}), ("intent", "other"), ("responder_key_epoch", 7)])
def test_a_changed_field_that_the_signature_does_not_bind_is_named(field, value):
    found = receipts.check({**without_proof(), field: value}, pinned_key=PIN)
    assert found.ok and field in found.not_bound


@pytest.mark.parametrize("field", ["schema_cid", "registry_cid"])
def test_the_unsigned_copy_is_checked_against_the_signed_one(field):
    found = receipts.check({**without_proof(), field: "changed"}, pinned_key=PIN)
    assert any(field in problem for problem in found.problems) and field in found.not_bound


@pytest.mark.parametrize("field", ["responder", "signature"])
def test_fields_that_stand_twice_must_agree(field):
    receipt = without_proof()
    changed = copy.deepcopy(receipt)
    changed[field][0] ^= 1
    assert any("disagree" in problem for problem in receipts.check(changed, pinned_key=PIN).problems)


def test_another_key_is_refused_only_when_the_key_is_pinned():
    other = receipts.sign(without_proof(), Ed25519PrivateKey.from_private_bytes(bytes(32)))
    assert receipts.check(other).ok and not receipts.check(other).pinned
    assert any("not by the pinned key" in problem for problem in receipts.check(other, pinned_key=PIN).problems)


def test_content_and_path_are_recomputed():
    receipt = without_proof()
    good = receipts.check(receipt, pinned_key=PIN, content=TEXT, path="/memories/membench/a.md")
    assert good.ok and good.pinned
    assert not receipts.check(receipt, pinned_key=PIN, content=TEXT + " ").ok
    assert not receipts.check(receipt, pinned_key=PIN, path="/memories/membench/b.md").ok


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_signs_and_verifies_and_dropping_the_version_breaks_v2(version):
    receipt = without_proof(version=version)
    assert receipts.check(receipt, pinned_key=PIN).ok
    if version:
        assert not receipts.check({k: v for k, v in receipt.items() if k != "preimage_version"}, pinned_key=PIN).ok


@pytest.mark.parametrize("version", [0, 1])
def test_merkle_paths(version):
    leaves = [blake3.blake3(bytes([n])).digest() for n in range(4)]
    leaf = lambda c: blake3.blake3(c + c if version == 0 else b"\0" + c).digest()
    node = lambda a, b: blake3.blake3((b"" if version == 0 else b"\1") + a + b).digest()
    hashed = [leaf(c) for c in leaves]
    left, right = node(*hashed[:2]), node(*hashed[2:])
    proof = {
        "leaf_index": 2,
        "path": [list(hashed[3]), list(left)],
        "root": list(node(left, right)),
        "version": version,
    }
    assert receipts.verify_merkle(proof, receipts.b32(leaves[2]))
    assert not receipts.verify_merkle({**proof, "leaf_index": 1}, receipts.b32(leaves[2]))
    assert not receipts.verify_merkle(proof, receipts.b32(leaves[1]))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"responder_pubkey_b32": "??", "signature_b32": "a"},
        without_proof() | {"cells": None},
        without_proof() | {"served_at": 3},
        without_proof() | {"preimage_version": 9},
        without_proof() | {"merkle_proof": {"path": 1}},
        without_proof() | {"signature_b32": "AAAA"},
        without_proof() | {"scope": {"user_id": 1.5}},
    ],
)
def test_a_malformed_receipt_is_a_problem_and_not_a_crash(broken):
    assert not receipts.check(broken).ok


@given(st.binary(max_size=70))
def test_base32_round_trip(data):
    assert receipts.b32_decode(receipts.b32(data), "x") == data


def test_ememdev_agrees_where_it_is_installed(vectors):
    verify = pytest.importorskip("ememdev.verify", reason="ememdev is an optional cross-check")
    assert verify.verify_receipt_offline(vectors["receipt_v2_real"]["receipt"]).ok
    assert verify.verify_receipt_offline(without_proof()).ok
