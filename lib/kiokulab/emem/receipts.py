"""Verification of emem receipts, offline: Ed25519 over the blake3 digest of a tagged byte stream (versions 0, 1, 2).

A signature that verifies says only that somebody with that key signed those fields. `check` therefore also asks for
the key to be pinned, recomputes the file's content id, compares the fields that stand twice, and lists what the
signature does not bind. Formats: emem-fact/src/receipt.rs and docs/protocol.md of Vortx-AI/emem.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field
from typing import Any

import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

NOT_BOUND = ("cost", "intent", "responder_key_epoch", "schema_cid", "registry_cid")


class MalformedReceipt(ValueError):
    """A receipt that cannot be read: the field and what is wrong with it."""


def b32(data: bytes) -> str:
    """RFC 4648 base32, lower case, no padding."""
    return base64.b32encode(data).decode().rstrip("=").lower()


def b32_decode(text: str, name: str) -> bytes:
    try:
        if text != text.lower():
            raise ValueError("upper case")
        data = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except (ValueError, AttributeError) as error:
        raise MalformedReceipt(f"{name} is not base32 ({error})") from None
    if b32(data) != text:  # the last character may carry bits that belong to no byte
        raise MalformedReceipt(f"{name} is not canonical base32")
    return data


def file_cid(body: str | bytes) -> str:
    """Content id of a memory file: base32 of the first 16 bytes of blake3 (26 characters)."""
    return b32(blake3.blake3(body.encode("utf-8") if isinstance(body, str) else body).digest()[:16])


# --- the byte stream --------------------------------------------------------------------------------------------


def _scalar(tag: int, value: bytes) -> bytes:
    return bytes([tag]) + struct.pack("<I", len(value)) + value


def _list(tag: int, values: list[str]) -> bytes:
    encoded = [value.encode() for value in values]
    return bytes([tag]) + struct.pack("<I", len(encoded)) + b"".join(struct.pack("<I", len(v)) + v for v in encoded)


def _stream(domain: str, body: bytes) -> bytes:
    return b"emem.preimage.v1\0" + struct.pack("<I", len(domain)) + domain.encode() + body


def _hex(data: bytes) -> bytes:
    return blake3.blake3(data).hexdigest().encode()


def _cbor_head(major: int, n: int) -> bytes:
    for size, code, limit in ((0, n, 24), (1, 24, 1 << 8), (2, 25, 1 << 16), (4, 26, 1 << 32), (8, 27, 1 << 64)):
        if n < limit:
            return bytes([major << 5 | code]) + (n.to_bytes(size, "big") if size else b"")
    raise MalformedReceipt("a number is too large for CBOR")


def cbor(value: Any) -> bytes:
    """Canonical CBOR of text, unsigned integers, lists and maps with text keys (in the order given): all a receipt
    uses. A whole CBOR library for four cases would be the larger thing to trust."""
    if isinstance(value, str):
        return _cbor_head(3, len(value.encode())) + value.encode()
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _cbor_head(0, value)
    if isinstance(value, list):
        return _cbor_head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, dict):
        return _cbor_head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
    raise MalformedReceipt(f"{type(value).__name__} has no place in a receipt's CBOR")


def manifest_digest(source_versions: dict[str, str]) -> bytes:
    return _hex(cbor(dict(sorted(source_versions.items()))))  # sorted by text, not by CBOR's shortest-first order


def edges_digest(edges: list[str]) -> bytes:
    return _hex(cbor(sorted(edges)))


def scope_digest(scope: dict[str, Any]) -> bytes:
    return _hex(cbor({k: scope[k] for k in ("user_id", "agent_id", "run_id", "org_id") if scope.get(k) is not None}))


def as_of_digest(as_of: dict[str, Any]) -> bytes:
    return _hex(cbor({k: as_of[k] for k in ("valid_time", "transaction_time") if as_of.get(k) is not None}))


def field_digest(place: dict[str, str]) -> bytes:
    return _hex(_stream("field", _scalar(1, place["aoi_cid"].encode()) + _scalar(2, place["derivation_cid"].encode())))


def merkle_digest(proof: dict[str, Any] | None) -> bytes:
    if not proof:
        return _hex(_stream("merkle", _scalar(5, b"")))
    path = b"".join(bytes(step) for step in proof["path"])
    return _hex(
        _stream(
            "merkle",
            _scalar(1, bytes(proof["root"]))
            + _scalar(2, struct.pack("<I", proof["leaf_index"]))
            + _scalar(3, path)
            + _scalar(4, bytes([proof.get("version") or 0])),
        )
    )


def preimage(receipt: dict[str, Any]) -> bytes:
    """The bytes whose blake3 digest is signed. Raises MalformedReceipt where a needed field is missing or
    unreadable."""
    try:
        version = receipt.get("preimage_version") or 0
        sub = {
            "scope": scope_digest(receipt["scope"]) if receipt.get("scope") else None,
            "as_of": as_of_digest(receipt["as_of"]) if receipt.get("as_of") else None,
            "edges": edges_digest(receipt["edge_cids"]) if receipt.get("edge_cids") else None,
            "manifest": manifest_digest(receipt["source_versions"]) if receipt.get("source_versions") else None,
        }
        if version == 0:
            parts = [
                receipt["request_id"],
                receipt["served_at"],
                *(v.decode() for v in sub.values() if v),
                receipt["primitive"],
            ]
            text = "".join(f"{part}|" for part in parts)
            return (
                text + "".join(f"{c}," for c in receipt["cells"]) + "|" + "".join(f"{c}," for c in receipt["fact_cids"])
            ).encode()
        if version not in (1, 2):
            raise MalformedReceipt(f"preimage_version {version!r} is unknown")
        body = _scalar(1, receipt["request_id"].encode()) + _scalar(2, receipt["served_at"].encode())
        body += b"".join(_scalar(tag, value) for tag, value in zip((3, 4, 5, 6), sub.values()) if value)
        body += _scalar(7, receipt["primitive"].encode()) + _list(8, receipt["cells"]) + _list(9, receipt["fact_cids"])
        if receipt.get("field"):
            body += _scalar(0x0A, field_digest(receipt["field"]))
        if version == 2:
            body += _scalar(0x0B, merkle_digest(receipt.get("merkle_proof")))
        return _stream("receipt", body)
    except MalformedReceipt:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise MalformedReceipt(f"{type(error).__name__}: {error}") from None


def verify_merkle(proof: dict[str, Any], cid: str) -> bool:
    """Whether the proof's path leads from the fact's content id to its root.

    Version 0: leaf = blake3(C||C), node = blake3(l||r). Version 1: leaf = blake3(00||C), node = blake3(01||l||r).
    """
    content, index, version = b32_decode(cid, "fact_cids[0]"), proof["leaf_index"], proof.get("version") or 0
    node = blake3.blake3(content + content if version == 0 else b"\0" + content).digest()
    for step in proof["path"]:
        left, right = (node, bytes(step)) if index % 2 == 0 else (bytes(step), node)
        node = blake3.blake3((b"" if version == 0 else b"\1") + left + right).digest()
        index //= 2
    return node == bytes(proof["root"])


# --- checking ---------------------------------------------------------------------------------------------------


@dataclass
class Check:
    """What was found. `ok` only when nothing in `problems`; `pinned` says whether the key was compared with one
    from elsewhere; `not_bound` names the fields that anyone could change without breaking the signature."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    digest_hex: str | None = None
    signer: str | None = None
    pinned: bool = False
    not_bound: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def check(
    receipt: dict[str, Any], *, pinned_key: str | None = None, content: str | None = None, path: str | None = None
) -> Check:
    """Check a receipt offline.

    Parameters
    ----------
    receipt : as the responder sent it.
    pinned_key : base32 public key got elsewhere than from the receipt; None leaves the check at "consistent".
    content : the file's text, to recompute its content id.
    path : where the file is said to be, to compare with the last cell.
    """
    found = Check(not_bound=[name for name in NOT_BOUND if name in receipt])
    try:
        key_text, signature_text = receipt["responder_pubkey_b32"], receipt["signature_b32"]
        key, signature = b32_decode(key_text, "responder_pubkey_b32"), b32_decode(signature_text, "signature_b32")
        stream = preimage(receipt)
    except KeyError as error:
        found.problems.append(f"incomplete: {error.args[0]} is missing")
        return found
    except MalformedReceipt as error:
        found.problems.append(f"malformed: {error}")
        return found
    found.signer, found.digest_hex = key_text, blake3.blake3(stream).hexdigest()
    for name, listed, wanted in (
        ("responder", receipt.get("responder"), key),
        ("signature", receipt.get("signature"), signature),
    ):
        if listed is not None and list(wanted) != listed:
            found.problems.append(f"`{name}` and `{name}{'_pubkey' if name == 'responder' else ''}_b32` disagree")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, blake3.blake3(stream).digest())
    except (InvalidSignature, ValueError):
        found.problems.append("the signature does not fit the fields")
    if pinned_key is None:
        found.notes.append("key not pinned: the receipt carries its own key, so this shows consistency, not who signed")
    elif pinned_key != key_text:
        found.problems.append(f"signed by {key_text}, not by the pinned key {pinned_key}")
    else:
        found.pinned = True
    versions = receipt.get("source_versions") or {}
    for name in ("schema_cid", "registry_cid"):  # not signed at the top, but signed inside source_versions
        if name in receipt and name in versions and receipt[name] != versions[name]:
            found.problems.append(f"`{name}` differs from the signed source_versions.{name}")
    cids, cells = receipt.get("fact_cids") or [], receipt.get("cells") or []
    if content is not None and (not cids or file_cid(content) != cids[0]):
        found.problems.append("the content's id is not the one in the receipt")
    if path is not None and (not cells or cells[-1] != path):
        found.problems.append(f"the receipt is about {cells[-1] if cells else 'nothing'}, not about {path}")
    proof = receipt.get("merkle_proof")
    if proof:
        try:
            if not cids or not verify_merkle(proof, cids[0]):
                found.problems.append("the Merkle path does not lead to its root")
        except (KeyError, TypeError, ValueError) as error:
            found.problems.append(f"malformed merkle_proof: {error}")
    return found


def sign(receipt: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The receipt with the key's public half and its signature filled in (both spellings of each)."""
    public = key.public_key().public_bytes_raw()
    signed = {**receipt, "responder": list(public), "responder_pubkey_b32": b32(public)}
    signature = key.sign(blake3.blake3(preimage(signed)).digest())
    return {**signed, "signature": list(signature), "signature_b32": b32(signature)}
