"""Reflection of a compute shader's interface from its SPIR-V words (SPIR-V specification 1.6, section 3).

Only what a host needs is read: storage buffers with their names and access, push constants, specialisation constants
and the local size. Names come from `OpName`/`OpMemberName`, so shaders must not be stripped. What a host here never
supplies is refused, as an image, another stage, or push constants that are not 32-bit numbers one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct, field

from vkcat.errors import ShaderError, mismatch

MAGIC = 0x07230203
NEWEST = 0x00010300
"""SPIR-V 1.3, which Vulkan 1.1 takes."""
MOST_IDS = (1 << 22) - 1
"""The specification's universal limit; drivers have tables by id."""
_STORAGE_INPUT = 1
_STORAGE_UNIFORM = 2
_STORAGE_WORKGROUP = 4
_STORAGE_PRIVATE = 6
_STORAGE_PUSH_CONSTANT = 9
_STORAGE_BUFFER = 12
_BUILTIN_WORKGROUP_SIZE = 25

MATRIX, SHADER, GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC = 0, 1, 61, 63
"""Capabilities: what every module may have, and what those have that reduce in subgroups."""

CORE_EXTENSIONS = ("SPV_KHR_storage_buffer_storage_class",)
"""Of SPIR-V, that need nothing of a device of Vulkan 1.1."""


class Binding(Struct, frozen=True):
    """One storage buffer: the name of its array, and what the shader may do with it."""

    index: int
    name: str
    dtype: str
    reads: bool
    writes: bool


class Interface(Struct, frozen=True):
    """What a host must supply to dispatch a shader.

    `push` maps each push constant's name to its byte offset, `push_dtypes` to its dtype; `spec` maps each
    specialisation constant's name to its id and default, LANES that of the local size along x; `shared_bytes` counts
    workgroup memory, without arrays as long as a constant of `spec`: `shared_arrays` has their constant and the bytes
    of an element.
    """

    bindings: tuple[Binding, ...]
    push: dict[str, int]
    push_dtypes: dict[str, str]
    spec: dict[str, tuple[int, int]]
    local_size: tuple[int, int, int]
    shared_bytes: int
    shared_arrays: tuple[tuple[str, int], ...]
    capabilities: tuple[int, ...]

    @property
    def push_bytes(self) -> int:
        return 4 * len(self.push)

    def sized(self, constants: Mapping[str, int]) -> tuple[int, int, int]:
        """The local size when the specialisation constants have these values."""
        x, y, z = self.local_size
        return (constants.get("LANES", x) if "LANES" in self.spec else x, y, z)

    def shared(self, constants: Mapping[str, int]) -> int:
        """Bytes of workgroup memory when the specialisation constants have these values."""
        values = {name: default for name, (_, default) in self.spec.items()} | dict(constants)
        return self.shared_bytes + sum(values[name] * each for name, each in self.shared_arrays)


class _Module(Struct):
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
    extensions: list[str] = field(default_factory=list)
    entry_points: list[tuple[int, str]] = field(default_factory=list)
    constant_types: dict[int, int] = field(default_factory=dict)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)


_OP_NAME, _OP_MEMBER_NAME, _OP_EXTENSION, _OP_ENTRY_POINT, _OP_EXECUTION_MODE, _OP_CAPABILITY = 5, 6, 10, 15, 16, 17
_OP_TYPE_BOOL, _OP_TYPE_INT, _OP_TYPE_FLOAT, _OP_TYPE_VECTOR, _OP_TYPE_MATRIX, _OP_TYPE_ARRAY = 20, 21, 22, 23, 24, 28
_OP_TYPE_RUNTIME_ARRAY, _OP_TYPE_STRUCT, _OP_TYPE_POINTER = 29, 30, 32
_OP_CONSTANT, _OP_CONSTANT_COMPOSITE, _OP_SPEC_TRUE, _OP_SPEC_FALSE = 43, 44, 48, 49
_OP_SPEC_CONSTANT, _OP_SPEC_COMPOSITE, _OP_SPEC_CONSTANT_OP, _OP_COMPOSITE_EXTRACT = 50, 51, 52, 81
_OP_FUNCTION, _OP_VARIABLE, _OP_DECORATE, _OP_MEMBER_DECORATE, _OP_EXECUTION_MODE_ID = 54, 59, 71, 72, 331
_TYPES = {20, 21, 22, 23, 24, 28, 29, 30, 32}
_DECORATION_SPEC_ID, _DECORATION_BUFFER_BLOCK, _DECORATION_BUILTIN = 1, 3, 11
_DECORATION_NON_WRITABLE, _DECORATION_NON_READABLE = 24, 25
_DECORATION_BINDING, _DECORATION_SET, _DECORATION_OFFSET = 33, 34, 35
_EXECUTION_MODE_LOCAL_SIZE = 17
_COMPUTE = 5


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
    if words[1] > NEWEST or words[3] > MOST_IDS:
        expected = f"SPIR-V 1.3 or older, of at most {MOST_IDS} ids"
        got = f"version {words[1] >> 16 & 0xFF}.{words[1] >> 8 & 0xFF} with {words[3]}"
        raise ShaderError(mismatch(subject, expected, got, "compile it for vulkan1.1"))
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
        elif opcode == _OP_EXTENSION:
            module.extensions.append(_string(operands)[0])
        elif opcode == _OP_ENTRY_POINT:
            module.entry_points.append((operands[0], _string(operands[2:])[0]))
        elif opcode == _OP_EXECUTION_MODE_ID:
            raise ShaderError(mismatch(subject, "a local size of its own", "ids", "compile it for vulkan1.1"))
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
            module.constant_types[operands[1]] = operands[0]
        elif opcode == _OP_SPEC_CONSTANT_OP and operands[2] == _OP_COMPOSITE_EXTRACT and len(operands) == 5:
            # As gl_WorkGroupSize.x is.
            module.parts[operands[1]] = (operands[3], operands[4])
        elif opcode in (_OP_SPEC_TRUE, _OP_SPEC_FALSE):
            module.constants[operands[1]] = int(opcode == _OP_SPEC_TRUE)
            module.constant_types[operands[1]] = operands[0]
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
    """Bytes of a type in workgroup memory. Each type is counted once: a struct of two structs of two, and so on, has
    more members than there is time for."""
    if type_id not in module.sizes:
        module.sizes[type_id] = _counted(module, *module.types[type_id])
    return module.sizes[type_id]


def _counted(module: _Module, opcode: int, operands: list[int]) -> int:
    if opcode == _OP_TYPE_BOOL:
        return 4
    if opcode in (_OP_TYPE_FLOAT, _OP_TYPE_INT):
        return operands[0] // 8
    if opcode in (_OP_TYPE_VECTOR, _OP_TYPE_MATRIX):
        return operands[1] * _bytes(module, operands[0])
    if opcode == _OP_TYPE_ARRAY and not _is_spec(module, length := _length(module, operands)):
        return module.constants[length] * _bytes(module, operands[0])
    if opcode == _OP_TYPE_STRUCT:
        return sum(_bytes(module, member) for member in operands)
    raise ValueError("shared memory of a type or size that is not known")


def _length(module: _Module, array: list[int]) -> int:
    """The constant that an array is as long as."""
    if array[1] not in module.parts:
        return array[1]
    composite, at = module.parts[array[1]]
    return module.composites[composite][at]


def _is_spec(module: _Module, constant: int) -> bool:
    return (constant, _DECORATION_SPEC_ID) in module.decorations


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


def _check_entry(module: _Module, subject: str) -> None:
    """Raises `ShaderError` unless there is one entry point, of a compute shader, as pipelines here ask for it."""
    if module.entry_points != [(_COMPUTE, "main")]:
        names = ", ".join(f"{name[:60]!r} of stage {model}" for model, name in module.entry_points[:4]) or "none"
        raise ShaderError(mismatch(subject, f"one entry point, 'main' of stage {_COMPUTE}, compute", names))
    others = [name for name in module.extensions if name not in CORE_EXTENSIONS]
    if others:
        raise ShaderError(mismatch(subject, "no extension of SPIR-V", others[0][:60], "devices are opened without"))
    if 0 in _local_size(module):
        raise ShaderError(mismatch(subject, "a local size of at least 1", _local_size(module)))


def _interface(module: _Module, subject: str) -> Interface:
    _check_entry(module, subject)
    spec_names = _spec_names(module, subject)
    bindings: list[Binding] = []
    push: dict[str, int] = {}
    push_dtypes: dict[str, str] = {}
    shared, arrays = 0, []
    for variable, pointer, storage in module.variables:
        _, (_, pointee) = module.types[pointer]
        # An image's type is in no table here.
        opcode, operands = module.types.get(pointee, (0, []))
        if storage == _STORAGE_WORKGROUP:
            if opcode == _OP_TYPE_ARRAY and _is_spec(module, length := _length(module, operands)):
                arrays.append((spec_names[length], _bytes(module, operands[0])))
            else:
                shared += _bytes(module, pointee)
        elif storage == _STORAGE_PUSH_CONSTANT:
            for member, type_id in enumerate(operands):
                name = module.members.get((pointee, member), f"member{member}")
                push[name] = module.member_decorations[pointee, member, _DECORATION_OFFSET][0]
                push_dtypes[name] = _element_dtype(module, type_id)
                if not _is_word(module, type_id) or push[name] != 4 * (len(push) - 1):
                    expected = "push constants that are 32-bit numbers, one after the other"
                    raise ShaderError(mismatch(subject, expected, f"{name!r} at byte {push[name]}"))
        elif storage in (_STORAGE_BUFFER, _STORAGE_UNIFORM):
            bindings.append(_binding(module, variable, pointee, storage, subject))
        elif storage not in (_STORAGE_INPUT, _STORAGE_PRIVATE):
            raise _other_kind(module, variable, pointee, subject)
    indices = [binding.index for binding in bindings]
    if len(set(indices)) < len(indices):
        raise ShaderError(mismatch(subject, "a binding for each buffer", f"the bindings {sorted(indices)}"))
    spec = {
        name: (module.decorations[target, _DECORATION_SPEC_ID][0], module.constants[target])
        for target, name in spec_names.items()
    }
    return Interface(
        bindings=tuple(sorted(bindings, key=lambda binding: binding.index)),
        push=push,
        push_dtypes=push_dtypes,
        spec=dict(sorted(spec.items(), key=lambda item: item[1])),
        local_size=_local_size(module),
        shared_bytes=shared,
        shared_arrays=tuple(arrays),
        capabilities=tuple(module.capabilities),
    )


def _binding(module: _Module, variable: int, struct: int, storage: int, subject: str) -> Binding:
    opcode, members = module.types[struct]
    is_buffer = storage == _STORAGE_BUFFER or (struct, _DECORATION_BUFFER_BLOCK) in module.decorations
    if module.decorations.get((variable, _DECORATION_SET), [0]) != [0] or opcode != _OP_TYPE_STRUCT or not is_buffer:
        raise _other_kind(module, variable, struct, subject)
    member = len(members) - 1

    def has(decoration: int) -> bool:
        return (struct, member, decoration) in module.member_decorations or (variable, decoration) in module.decorations

    return Binding(
        index=module.decorations[variable, _DECORATION_BINDING][0],
        name=module.members.get((struct, member), ""),
        dtype=_element_dtype(module, members[member]),
        reads=not has(_DECORATION_NON_READABLE),
        writes=not has(_DECORATION_NON_WRITABLE),
    )


def _other_kind(module: _Module, variable: int, pointee: int, subject: str) -> ShaderError:
    """An image, a uniform block, an array of buffers, or what lies in another set."""
    what = module.names.get(variable) or module.names.get(pointee, "a resource")
    return ShaderError(mismatch(subject, "storage buffers in set 0 alone", f"{what[:60]!r}, which is another kind"))


def _spec_names(module: _Module, subject: str) -> dict[int, str]:
    """By id. A size that is a specialisation constant has no name in SPIR-V."""
    names = dict(zip(_size_constants(module), ("LANES", "LANES_Y", "LANES_Z"), strict=False)) | module.names
    ids = {
        target: operands[0]
        for (target, decoration), operands in module.decorations.items()
        if decoration == _DECORATION_SPEC_ID
    }
    found = {target: names.get(target, f"spec{identifier}") for target, identifier in ids.items()}
    if len(set(ids.values())) < len(ids) or len(set(found.values())) < len(found):
        got = ", ".join(name[:60] for name in sorted(found.values())[:8])
        raise ShaderError(mismatch(subject, "specialisation constants of different names and ids", got))
    for target, name in found.items():
        kind = module.constant_types[target]
        if not _is_word(module, kind) and module.types[kind][0] != _OP_TYPE_BOOL:
            raise ShaderError(mismatch(subject, "specialisation constants of 32 bits", name[:60]))
    return found


def _is_word(module: _Module, type_id: int) -> bool:
    opcode, operands = module.types[type_id]
    return opcode in (_OP_TYPE_INT, _OP_TYPE_FLOAT) and operands[0] == 32


def reflect(code: bytes, subject: str = "shader") -> Interface:
    """Interface of a compute shader. Raises `ShaderError` when `code` is not SPIR-V vkcat can drive."""
    try:
        return _interface(_parse(code, subject), subject)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        # An id, operand or string that is not there: the module is damaged, not only unusual.
        got = f"{type(error).__name__} {error} while reading it"
        raise ShaderError(mismatch(subject, "SPIR-V that spirv-val accepts", got)) from error
