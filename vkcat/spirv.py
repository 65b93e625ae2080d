"""Reflection of a compute shader's interface from its SPIR-V words (SPIR-V specification 1.6, section 3).

Only what a host needs is read: storage buffers with their names and access, push constants, specialisation constants
and the local size. Names come from `OpName`/`OpMemberName`, so shaders must not be stripped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from vkcat.errors import ShaderError, mismatch

MAGIC = 0x07230203
_STORAGE_CONSTANT = 0
_STORAGE_PUSH_CONSTANT = 9
_STORAGE_UNIFORM = 2
_STORAGE_BUFFER = 12
_STORAGE_WORKGROUP = 4
_BUILTIN_WORKGROUP_SIZE = 25

SHADER, GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC = 1, 61, 63
"""Capabilities: what every module has, and what those have that reduce in subgroups."""


@dataclass(frozen=True)
class Binding:
    """One storage buffer: the name of its array, and what the shader may do with it."""

    index: int
    name: str
    dtype: str
    reads: bool
    writes: bool


@dataclass(frozen=True)
class Interface:
    """What a host must supply to dispatch a shader.

    `push` maps each push constant's name to its byte offset, `push_dtypes` to its dtype; `spec` maps each
    specialisation constant's name to its id and default, LANES that of the local size along x; `shared_bytes` counts
    workgroup memory.
    """

    bindings: tuple[Binding, ...]
    push: dict[str, int]
    push_dtypes: dict[str, str]
    spec: dict[str, tuple[int, int]]
    local_size: tuple[int, int, int]
    shared_bytes: int
    capabilities: tuple[int, ...]

    @property
    def push_bytes(self) -> int:
        return 4 * len(self.push)

    def sized(self, constants: Mapping[str, int]) -> tuple[int, int, int]:
        """The local size when the specialisation constants have these values."""
        x, y, z = self.local_size
        return (constants.get("LANES", x) if "LANES" in self.spec else x, y, z)


@dataclass
class _Module:
    """The tables that one pass over the instructions fills."""

    names: dict[int, str] = field(default_factory=dict)
    members: dict[tuple[int, int], str] = field(default_factory=dict)
    decorations: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    member_decorations: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    types: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)
    composites: dict[int, list[int]] = field(default_factory=dict)
    variables: list[tuple[int, int, int]] = field(default_factory=list)
    local_size: tuple[int, int, int] = (1, 1, 1)
    capabilities: list[int] = field(default_factory=list)


_OP_NAME, _OP_MEMBER_NAME, _OP_EXECUTION_MODE, _OP_CAPABILITY = 5, 6, 16, 17
_OP_TYPE_INT, _OP_TYPE_FLOAT, _OP_TYPE_VECTOR, _OP_TYPE_ARRAY = 21, 22, 23, 28
_OP_TYPE_RUNTIME_ARRAY, _OP_TYPE_STRUCT, _OP_TYPE_POINTER, _OP_TYPE_BOOL = 29, 30, 32, 20
_OP_CONSTANT, _OP_CONSTANT_COMPOSITE, _OP_SPEC_CONSTANT, _OP_SPEC_COMPOSITE = 43, 44, 50, 51
_OP_FUNCTION, _OP_VARIABLE, _OP_DECORATE, _OP_MEMBER_DECORATE = 54, 59, 71, 72
_TYPES = {20, 21, 22, 23, 28, 29, 30, 32}
_DECORATION_SPEC_ID, _DECORATION_BUILTIN, _DECORATION_NON_WRITABLE, _DECORATION_NON_READABLE = 1, 11, 24, 25
_DECORATION_BINDING, _DECORATION_SET, _DECORATION_OFFSET = 33, 34, 35
_EXECUTION_MODE_LOCAL_SIZE = 17


def _string(words: list[int]) -> tuple[str, int]:
    """A literal string and how many words it took."""
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    end = raw.index(b"\0")
    return raw[:end].decode("utf-8", "replace"), end // 4 + 1


def _instructions(code: bytes, subject: str) -> Iterator[tuple[int, list[int]]]:
    """Opcode and operands of each instruction before the first function, where all that is declared lies.

    The functions are gone through as well, so that a module which was cut short is found.
    """
    if len(code) < 20 or len(code) % 4:
        raise ShaderError(f"{subject}: expected SPIR-V, got {len(code)} bytes; compile it for vulkan1.1")
    words: list[int] = np.frombuffer(code, dtype="<u4").tolist()
    if words[0] != MAGIC:
        raise ShaderError(f"{subject}: expected SPIR-V magic {MAGIC:#010x}, got {words[0]:#010x}")
    at, declared = 5, True
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        if count == 0 or at + count > len(words):
            raise ShaderError(f"{subject}: expected whole SPIR-V instructions, got one cut at word {at}")
        declared = declared and opcode != _OP_FUNCTION
        if declared:
            yield opcode, words[at + 1 : at + count]
        at += count


def _parse(code: bytes, subject: str) -> _Module:
    module = _Module()
    for opcode, operands in _instructions(code, subject):
        if opcode == _OP_NAME:
            module.names[operands[0]] = _string(operands[1:])[0]
        elif opcode == _OP_MEMBER_NAME:
            module.members[operands[0], operands[1]] = _string(operands[2:])[0]
        elif opcode == _OP_CAPABILITY:
            module.capabilities.append(operands[0])
        elif opcode == _OP_EXECUTION_MODE and operands[1] == _EXECUTION_MODE_LOCAL_SIZE:
            module.local_size = (operands[2], operands[3], operands[4])
        elif opcode == _OP_DECORATE:
            module.decorations[operands[0], operands[1]] = operands[2:]
        elif opcode == _OP_MEMBER_DECORATE:
            module.member_decorations[operands[0], operands[1], operands[2]] = operands[3:]
        elif opcode in _TYPES:
            module.types[operands[0]] = (opcode, operands[1:])
        elif opcode in (_OP_CONSTANT, _OP_SPEC_CONSTANT):
            module.constants[operands[1]] = operands[2]
        elif opcode in (_OP_CONSTANT_COMPOSITE, _OP_SPEC_COMPOSITE):
            module.composites[operands[1]] = operands[2:]
        elif opcode == _OP_VARIABLE:
            module.variables.append((operands[1], operands[0], operands[2]))
    return module


def _element_dtype(module: _Module, type_id: int) -> str:
    """dtype of the scalars that an array, vector or scalar type is made of."""
    opcode, operands = module.types[type_id]
    if opcode in (_OP_TYPE_RUNTIME_ARRAY, _OP_TYPE_ARRAY, _OP_TYPE_VECTOR):
        return _element_dtype(module, operands[0])
    if opcode == _OP_TYPE_FLOAT:
        return f"float{operands[0]}"
    if opcode == _OP_TYPE_INT:
        return f"{'int' if operands[1] else 'uint'}{operands[0]}"
    return "struct"


def _bytes(module: _Module, type_id: int) -> int:
    """Bytes of a type in workgroup memory; what is not counted is larger, never smaller."""
    opcode, operands = module.types[type_id]
    if opcode == _OP_TYPE_BOOL:
        return 4
    if opcode in (_OP_TYPE_FLOAT, _OP_TYPE_INT):
        return operands[0] // 8
    if opcode == _OP_TYPE_VECTOR:
        return operands[1] * _bytes(module, operands[0])
    if opcode == _OP_TYPE_ARRAY:
        return module.constants.get(operands[1], 0) * _bytes(module, operands[0])
    if opcode == _OP_TYPE_STRUCT:
        return sum(_bytes(module, member) for member in operands)
    return 0


def _size_constants(module: _Module) -> list[int]:
    """Ids of the constants that the local size is made of, where it is not written as numbers."""
    for (target, decoration), operands in module.decorations.items():
        if decoration == _DECORATION_BUILTIN and operands == [_BUILTIN_WORKGROUP_SIZE]:
            return module.composites.get(target, [])
    return []


def _local_size(module: _Module) -> tuple[int, int, int]:
    parts = _size_constants(module)
    if not parts:
        return module.local_size
    x, y, z = (module.constants[part] for part in parts)
    return (x, y, z)


def reflect(code: bytes, subject: str = "shader") -> Interface:
    """Interface of a compute shader. Raises `ShaderError` when `code` is not SPIR-V vkcat can drive."""
    try:
        return _interface(_parse(code, subject), subject)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        # An id, operand or string that is not there: the module is damaged, not only unusual.
        got = f"{type(error).__name__} {error} while reading it"
        raise ShaderError(mismatch(subject, "SPIR-V that spirv-val accepts", got)) from error


def _interface(module: _Module, subject: str) -> Interface:
    bindings: list[Binding] = []
    push: dict[str, int] = {}
    push_dtypes: dict[str, str] = {}
    shared = 0
    for variable, pointer, storage in module.variables:
        _, (_, pointee) = module.types[pointer]
        if module.decorations.get((variable, _DECORATION_SET), [0]) != [0] or storage == _STORAGE_CONSTANT:
            what = module.names.get(variable) or module.names.get(pointee, "a resource")
            raise ShaderError(mismatch(subject, "storage buffers in set 0 alone", f"{what!r}, which is another kind"))
        if storage == _STORAGE_WORKGROUP:
            shared += _bytes(module, pointee)
        elif storage == _STORAGE_PUSH_CONSTANT:
            for member in range(len(module.types[pointee][1])):
                name = module.members.get((pointee, member), f"member{member}")
                push[name] = module.member_decorations[pointee, member, _DECORATION_OFFSET][0]
                push_dtypes[name] = _element_dtype(module, module.types[pointee][1][member])
        elif storage in (_STORAGE_BUFFER, _STORAGE_UNIFORM):
            member = len(module.types[pointee][1]) - 1
            marks = module.member_decorations
            writable = (pointee, member, _DECORATION_NON_WRITABLE) not in marks
            writable = writable and (variable, _DECORATION_NON_WRITABLE) not in module.decorations
            readable = (pointee, member, _DECORATION_NON_READABLE) not in marks
            readable = readable and (variable, _DECORATION_NON_READABLE) not in module.decorations
            bindings.append(
                Binding(
                    index=module.decorations[variable, _DECORATION_BINDING][0],
                    name=module.members.get((pointee, member), ""),
                    dtype=_element_dtype(module, module.types[pointee][1][member]),
                    reads=readable,
                    writes=writable,
                )
            )
    # A size that is a specialisation constant has no name in SPIR-V.
    names = dict(zip(_size_constants(module), ("LANES", "LANES_Y", "LANES_Z"), strict=False)) | module.names
    spec = {
        names.get(target, f"spec{operands[0]}"): (operands[0], module.constants.get(target, 0))
        for (target, decoration), operands in module.decorations.items()
        if decoration == _DECORATION_SPEC_ID
    }
    return Interface(
        bindings=tuple(sorted(bindings, key=lambda binding: binding.index)),
        push=dict(sorted(push.items(), key=lambda item: item[1])),
        push_dtypes=push_dtypes,
        spec=dict(sorted(spec.items(), key=lambda item: item[1])),
        local_size=_local_size(module),
        shared_bytes=shared,
        capabilities=tuple(module.capabilities),
    )
