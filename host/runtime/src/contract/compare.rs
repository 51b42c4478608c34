//! Finds the first difference between an interface as a guest declares it and as this host has it.
//! Types are compared by structure, including names: the component model has no subtyping, so any
//! difference is fatal.

use std::collections::HashSet;

use wasmparser::PrimitiveValType;
use wasmparser::component_types::{
    AliasableResourceId, ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId,
    ComponentEntityType, ComponentFuncType, ComponentInstanceType, ComponentValType,
};
use wit_parser::{Function, Handle, Resolve, Type, TypeDef, TypeDefKind, TypeId};

use super::declared::{Declared, printable};
use super::line::ContractLine;

/// The first difference in an exported interface: something is missing or differs. Additional
/// functions are allowed because the host never calls them.
pub(super) fn exported(
    guest: &Declared,
    theirs: &ComponentInstanceType,
    name: &str,
    line: &ContractLine,
) -> Difference {
    let Some(ours) = line.interface(name) else { return Some(format!("this host has no interface {name}")) };
    let mut comparison = Comparison::new(guest, theirs, name, line);
    ours.functions.values().find_map(|function| {
        match theirs.exports.get(function.name.as_str()).map(|item| item.ty) {
            Some(ComponentEntityType::Func(id)) => comparison.function(&guest.types[id], function),
            _ => Some(format!("interface {name}: function {} is missing", function.name)),
        }
    })
}

/// The first difference in an imported interface: the host lacks something that the guest imports,
/// or has it differently.
pub(super) fn imported(
    guest: &Declared,
    theirs: &ComponentInstanceType,
    name: &str,
    line: &ContractLine,
) -> Difference {
    let Some(ours) = line.interface(name) else { return Some(format!("this host has no interface {name}")) };
    let mut comparison = Comparison::new(guest, theirs, name, line);
    theirs.exports.iter().find_map(|(member, item)| {
        let lacking =
            |what: &str| Some(format!("interface {name}: this host has no {what} {}", printable(member)));
        match item.ty {
            ComponentEntityType::Func(id) => match ours.functions.get(member) {
                Some(provided) => comparison.function(&guest.types[id], provided),
                None => lacking("function"),
            },
            ComponentEntityType::Type { .. } => None,
            _ => lacking("member"),
        }
    })
}

struct Comparison<'a> {
    guest: &'a Declared,
    /// The guest's interface.
    instance: &'a ComponentInstanceType,
    host: &'a Resolve,
    /// Where the comparison is, for messages: `interface NAME`.
    path: String,
    seen: HashSet<(ComponentDefinedTypeId, TypeId)>,
}

pub(super) type Difference = Option<String>;

impl<'a> Comparison<'a> {
    fn new(
        guest: &'a Declared,
        instance: &'a ComponentInstanceType,
        interface: &str,
        line: &'a ContractLine,
    ) -> Self {
        let path = format!("interface {interface}");
        Self { guest, instance, host: line.resolve(), path, seen: HashSet::new() }
    }

    fn function(&mut self, theirs: &ComponentFuncType, ours: &Function) -> Difference {
        let path = format!("{}, function {}", self.path, ours.name);
        if theirs.params.len() != ours.params.len() {
            return Some(format!(
                "{path}: it has {} parameters, this host has {}",
                theirs.params.len(),
                ours.params.len()
            ));
        }
        if theirs.async_ {
            return Some(format!("{path}: it is asynchronous, this host calls it synchronously"));
        }
        for (index, ((name, ty), b)) in theirs.params.iter().zip(&ours.params).enumerate() {
            if name.as_str() != b.name {
                return Some(format!(
                    "{path}: parameter {} is \"{}\", this host has \"{}\"",
                    index + 1,
                    printable(name.as_str()),
                    b.name
                ));
            }
            let difference = self.types(ty, &b.ty, &format!("{path}, parameter {}", b.name));
            if difference.is_some() {
                return difference;
            }
        }
        self.optional(theirs.result.as_ref(), ours.result.as_ref(), &format!("{path}, result"))
    }

    fn optional(&mut self, theirs: Option<&ComponentValType>, ours: Option<&Type>, path: &str) -> Difference {
        match (theirs, ours) {
            (None, None) => None,
            (Some(a), Some(b)) => self.types(a, b, path),
            (Some(_), None) => Some(format!("{path}: it has a value, this host has none")),
            (None, Some(_)) => Some(format!("{path}: it has no value, this host has one")),
        }
    }

    fn types(&mut self, theirs: &ComponentValType, ours: &Type, path: &str) -> Difference {
        let (theirs, ours) = (self.behind_definition(*theirs), behind_aliases(self.host, *ours));
        match (theirs, ours) {
            (ComponentValType::Type(a), Type::Id(b)) => {
                if !self.seen.insert((a, b)) {
                    return None;
                }
                let (guest, b) = (self.guest, self.host.types.get(b)?);
                self.definitions(&guest.types[a], b, path)
            }
            (ComponentValType::Primitive(a), b) if primitive(b) == Some(a) => None,
            (a, b) => Some(format!(
                "{path}: it is {}, this host has {}",
                self.describe_theirs(a),
                describe(self.host, b)
            )),
        }
    }

    fn definitions(&mut self, theirs: &ComponentDefinedType, ours: &TypeDef, path: &str) -> Difference {
        let path = match &ours.name {
            Some(name) => format!("{}, {} {name}", self.path, ours.kind.as_str()),
            None => path.to_owned(),
        };
        match (theirs, &ours.kind) {
            (ComponentDefinedType::Record(a), TypeDefKind::Record(b)) => {
                let theirs = a.fields.iter().map(|(name, ty)| (name.as_str(), Some(ty)));
                let ours = b.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty)));
                self.members(theirs, ours, "field", &path)
            }
            (ComponentDefinedType::Variant(a), TypeDefKind::Variant(b)) => {
                let theirs = a.cases.iter().map(|(name, case)| (name.as_str(), case.ty.as_ref()));
                let ours = b.cases.iter().map(|case| (case.name.as_str(), case.ty.as_ref()));
                self.members(theirs, ours, "case", &path)
            }
            (ComponentDefinedType::Enum(a), TypeDefKind::Enum(b)) => {
                let theirs = a.iter().map(|case| (case.as_str(), None));
                let ours = b.cases.iter().map(|case| (case.name.as_str(), None));
                self.members(theirs, ours, "case", &path)
            }
            (ComponentDefinedType::Tuple(a), TypeDefKind::Tuple(b)) => {
                let theirs = a.types.iter().map(|ty| ("", Some(ty)));
                self.members(theirs, b.types.iter().map(|ty| ("", Some(ty))), "place", &path)
            }
            (ComponentDefinedType::List { element, .. }, TypeDefKind::List(b)) => {
                self.types(element, b, &format!("{path}, element"))
            }
            (ComponentDefinedType::Option { ty, .. }, TypeDefKind::Option(b)) => {
                self.types(ty, b, &format!("{path}, value"))
            }
            (ComponentDefinedType::Result { ok, err, .. }, TypeDefKind::Result(b)) => {
                let difference = self.optional(ok.as_ref(), b.ok.as_ref(), &format!("{path}, ok"));
                difference.or_else(|| self.optional(err.as_ref(), b.err.as_ref(), &format!("{path}, error")))
            }
            (ComponentDefinedType::Own(a), TypeDefKind::Handle(Handle::Own(b)))
            | (ComponentDefinedType::Borrow(a), TypeDefKind::Handle(Handle::Borrow(b))) => {
                self.resources(*a, *b, &path)
            }
            (ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_), TypeDefKind::Handle(_)) => {
                Some(format!("{path}: one is owned, the other borrowed"))
            }
            (a, b) => Some(format!("{path}: it is a {}, this host has a {}", kind(a), b.as_str())),
        }
    }

    fn members<'t>(
        &mut self,
        theirs: impl Iterator<Item = (&'t str, Option<&'t ComponentValType>)>,
        ours: impl ExactSizeIterator<Item = (&'t str, Option<&'t Type>)>,
        what: &str,
        path: &str,
    ) -> Difference {
        let our_count = ours.len();
        let mut theirs = theirs;
        for (index, (our_name, our_type)) in ours.enumerate() {
            let number = index + 1;
            let Some((their_name, their_type)) = theirs.next() else {
                return Some(format!("{path}: {what} {number} (\"{our_name}\") is missing"));
            };
            if their_name != our_name {
                return Some(format!(
                    "{path}: {what} {number} is \"{}\", this host has \"{our_name}\"",
                    printable(their_name)
                ));
            }
            let difference =
                self.optional(their_type, our_type, &format!("{path}, {what} {number} {our_name}"));
            if difference.is_some() {
                return difference;
            }
        }
        theirs.next().map(|(name, _)| {
            let number = our_count + 1;
            format!("{path}: {what} {number} is \"{}\", this host has only {our_count}", printable(name))
        })
    }

    fn resources(&self, theirs: AliasableResourceId, ours: TypeId, path: &str) -> Difference {
        let is_theirs = |id: ComponentAnyTypeId| matches!(id, ComponentAnyTypeId::Resource(own) if own.resource() == theirs.resource());
        let (a, b) = (self.name_of(is_theirs), behind_name(self.host, ours));
        (a != b).then(|| format!("{path}: it is a handle to {a:?}, this host has {b:?}"))
    }

    /// The name under which the guest's interface has a type.
    fn name_of(&self, is_it: impl Fn(ComponentAnyTypeId) -> bool) -> Option<String> {
        let named = self.instance.exports.iter().find(|(_, item)| {
            matches!(item.ty, ComponentEntityType::Type { referenced, created } if is_it(created) || is_it(referenced))
        });
        named.map(|(name, _)| printable(name))
    }

    /// A primitive type that has a name is defined as that primitive.
    fn behind_definition(&self, ty: ComponentValType) -> ComponentValType {
        match ty {
            ComponentValType::Type(id) => match self.guest.types[id] {
                ComponentDefinedType::Primitive(primitive) => ComponentValType::Primitive(primitive),
                _ => ty,
            },
            ComponentValType::Primitive(_) => ty,
        }
    }

    fn describe_theirs(&self, ty: ComponentValType) -> String {
        let id = match ty {
            ComponentValType::Primitive(primitive) => return primitive.to_string(),
            ComponentValType::Type(id) => id,
        };
        let kind = kind(&self.guest.types[id]);
        match self.name_of(|named| matches!(named, ComponentAnyTypeId::Defined(named) if named == id)) {
            Some(name) => format!("the {kind} {name}"),
            None => format!("a {kind}"),
        }
    }
}

fn behind_name(resolve: &Resolve, id: TypeId) -> Option<String> {
    let Type::Id(id) = behind_aliases(resolve, Type::Id(id)) else { return None };
    resolve.types.get(id)?.name.clone()
}

/// Resolves aliases that `type x = y` and `use` make.
fn behind_aliases(resolve: &Resolve, ty: Type) -> Type {
    let mut ty = ty;
    // An alias refers to an earlier declaration, so this loop ends.
    while let Type::Id(id) = ty
        && let Some(TypeDefKind::Type(next)) = resolve.types.get(id).map(|definition| &definition.kind)
    {
        ty = *next;
    }
    ty
}

fn describe(resolve: &Resolve, ty: Type) -> String {
    let Type::Id(id) = ty else { return format!("{ty:?}").to_lowercase() };
    let Some(definition) = resolve.types.get(id) else { return "unknown".to_owned() };
    let kind = definition.kind.as_str();
    match &definition.name {
        Some(name) => format!("the {kind} {name}"),
        None => format!("a {kind}"),
    }
}

fn primitive(ty: Type) -> Option<PrimitiveValType> {
    Some(match ty {
        Type::Bool => PrimitiveValType::Bool,
        Type::U8 => PrimitiveValType::U8,
        Type::U16 => PrimitiveValType::U16,
        Type::U32 => PrimitiveValType::U32,
        Type::U64 => PrimitiveValType::U64,
        Type::S8 => PrimitiveValType::S8,
        Type::S16 => PrimitiveValType::S16,
        Type::S32 => PrimitiveValType::S32,
        Type::S64 => PrimitiveValType::S64,
        Type::F32 => PrimitiveValType::F32,
        Type::F64 => PrimitiveValType::F64,
        Type::Char => PrimitiveValType::Char,
        Type::String => PrimitiveValType::String,
        Type::ErrorContext => PrimitiveValType::ErrorContext,
        Type::Id(_) => return None,
    })
}

fn kind(ty: &ComponentDefinedType) -> &'static str {
    match ty {
        ComponentDefinedType::Primitive(_) => "primitive",
        ComponentDefinedType::Record(_) => "record",
        ComponentDefinedType::Variant(_) => "variant",
        ComponentDefinedType::List { .. } => "list",
        ComponentDefinedType::Map { .. } => "map",
        ComponentDefinedType::FixedLengthList { .. } => "fixed-length list",
        ComponentDefinedType::Tuple(_) => "tuple",
        ComponentDefinedType::Flags(_) => "flags",
        ComponentDefinedType::Enum(_) => "enum",
        ComponentDefinedType::Option { .. } => "option",
        ComponentDefinedType::Result { .. } => "result",
        ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_) => "handle",
        ComponentDefinedType::Future { .. } => "future",
        ComponentDefinedType::Stream { .. } => "stream",
    }
}
