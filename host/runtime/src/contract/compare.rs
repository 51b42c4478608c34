//! Finds the first difference between an interface as a guest declares it and as this host has it.
//! Types are compared by structure, including names: the component model has no subtyping, so any
//! difference is fatal.

use std::collections::HashSet;

use wit_parser::{Function, Handle, InterfaceId, Resolve, Type, TypeDef, TypeDefKind, TypeId};

use super::line::ContractLine;

/// The first difference in an exported interface: something is missing or differs. Additional
/// functions are allowed because the host never calls them.
pub(super) fn exported(guest: &Resolve, id: InterfaceId, name: &str, line: &ContractLine) -> Difference {
    let (Some(theirs), Some(ours)) = (guest.interfaces.get(id), line.interface(name)) else {
        return Some(format!("this host has no interface {name}"));
    };
    let mut comparison = Comparison::new(guest, name, line);
    ours.functions.values().find_map(|function| match theirs.functions.get(&function.name) {
        Some(declared) => comparison.function(declared, function),
        None => Some(format!("interface {name}: function {} is missing", function.name)),
    })
}

/// The first difference in an imported interface: the host lacks something that the guest imports,
/// or has it differently.
pub(super) fn imported(guest: &Resolve, id: InterfaceId, name: &str, line: &ContractLine) -> Difference {
    let Some(theirs) = guest.interfaces.get(id) else { return Some("an interface is missing".to_owned()) };
    let Some(ours) = line.interface(name) else { return Some(format!("this host has no interface {name}")) };
    let mut comparison = Comparison::new(guest, name, line);
    theirs.functions.values().find_map(|function| match ours.functions.get(&function.name) {
        Some(provided) => comparison.function(function, provided),
        None => Some(format!("interface {name}: this host has no function {}", function.name)),
    })
}

struct Comparison<'a> {
    guest: &'a Resolve,
    host: &'a Resolve,
    /// Where the comparison is, for messages: `interface NAME`.
    path: String,
    seen: HashSet<(TypeId, TypeId)>,
}

pub(super) type Difference = Option<String>;

impl<'a> Comparison<'a> {
    fn new(guest: &'a Resolve, interface: &str, line: &'a ContractLine) -> Self {
        Self { guest, host: line.resolve(), path: format!("interface {interface}"), seen: HashSet::new() }
    }

    fn function(&mut self, theirs: &Function, ours: &Function) -> Difference {
        let path = format!("{}, function {}", self.path, ours.name);
        if theirs.params.len() != ours.params.len() {
            return Some(format!(
                "{path}: it has {} parameters, this host has {}",
                theirs.params.len(),
                ours.params.len()
            ));
        }
        for (index, (a, b)) in theirs.params.iter().zip(&ours.params).enumerate() {
            if a.name != b.name {
                return Some(format!(
                    "{path}: parameter {} is \"{}\", this host has \"{}\"",
                    index + 1,
                    a.name,
                    b.name
                ));
            }
            let difference = self.types(&a.ty, &b.ty, &format!("{path}, parameter {}", b.name));
            if difference.is_some() {
                return difference;
            }
        }
        self.optional(theirs.result.as_ref(), ours.result.as_ref(), &format!("{path}, result"))
    }

    fn optional(&mut self, theirs: Option<&Type>, ours: Option<&Type>, path: &str) -> Difference {
        match (theirs, ours) {
            (None, None) => None,
            (Some(a), Some(b)) => self.types(a, b, path),
            (Some(_), None) => Some(format!("{path}: it has a value, this host has none")),
            (None, Some(_)) => Some(format!("{path}: it has no value, this host has one")),
        }
    }

    fn types(&mut self, theirs: &Type, ours: &Type, path: &str) -> Difference {
        let (theirs, ours) = (behind_aliases(self.guest, *theirs), behind_aliases(self.host, *ours));
        match (theirs, ours) {
            (Type::Id(a), Type::Id(b)) => {
                if !self.seen.insert((a, b)) {
                    return None;
                }
                let (a, b) = (self.guest.types.get(a)?, self.host.types.get(b)?);
                self.definitions(a, b, path)
            }
            (a, b) if a == b => None,
            (a, b) => Some(format!(
                "{path}: it is {}, this host has {}",
                describe(self.guest, a),
                describe(self.host, b)
            )),
        }
    }

    fn definitions(&mut self, theirs: &TypeDef, ours: &TypeDef, path: &str) -> Difference {
        let path = match &ours.name {
            Some(name) => format!("{}, {} {name}", self.path, ours.kind.as_str()),
            None => path.to_owned(),
        };
        match (&theirs.kind, &ours.kind) {
            (TypeDefKind::Record(a), TypeDefKind::Record(b)) => {
                let theirs = a.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty)));
                let ours = b.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty)));
                self.members(theirs, ours, "field", &path)
            }
            (TypeDefKind::Variant(a), TypeDefKind::Variant(b)) => {
                let theirs = a.cases.iter().map(|case| (case.name.as_str(), case.ty.as_ref()));
                let ours = b.cases.iter().map(|case| (case.name.as_str(), case.ty.as_ref()));
                self.members(theirs, ours, "case", &path)
            }
            (TypeDefKind::Enum(a), TypeDefKind::Enum(b)) => {
                let theirs = a.cases.iter().map(|case| (case.name.as_str(), None));
                let ours = b.cases.iter().map(|case| (case.name.as_str(), None));
                self.members(theirs, ours, "case", &path)
            }
            (TypeDefKind::Tuple(a), TypeDefKind::Tuple(b)) => {
                let theirs = a.types.iter().map(|ty| ("", Some(ty)));
                self.members(theirs, b.types.iter().map(|ty| ("", Some(ty))), "place", &path)
            }
            (TypeDefKind::List(a), TypeDefKind::List(b)) => self.types(a, b, &format!("{path}, element")),
            (TypeDefKind::Option(a), TypeDefKind::Option(b)) => self.types(a, b, &format!("{path}, value")),
            (TypeDefKind::Result(a), TypeDefKind::Result(b)) => {
                let ok = self.optional(a.ok.as_ref(), b.ok.as_ref(), &format!("{path}, ok"));
                ok.or_else(|| self.optional(a.err.as_ref(), b.err.as_ref(), &format!("{path}, error")))
            }
            (TypeDefKind::Handle(a), TypeDefKind::Handle(b)) => self.handles(a, b, &path),
            (TypeDefKind::Resource, TypeDefKind::Resource) if theirs.name == ours.name => None,
            (a, b) => Some(format!("{path}: it is a {}, this host has a {}", a.as_str(), b.as_str())),
        }
    }

    fn members<'t>(
        &mut self,
        theirs: impl Iterator<Item = (&'t str, Option<&'t Type>)>,
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
                    "{path}: {what} {number} is \"{their_name}\", this host has \"{our_name}\""
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
            format!("{path}: {what} {number} is \"{name}\", this host has only {our_count}")
        })
    }

    fn handles(&mut self, theirs: &Handle, ours: &Handle, path: &str) -> Difference {
        let ids = match (theirs, ours) {
            (Handle::Own(a), Handle::Own(b)) | (Handle::Borrow(a), Handle::Borrow(b)) => Some((*a, *b)),
            _ => None,
        };
        let Some((a, b)) = ids else { return Some(format!("{path}: one is owned, the other borrowed")) };
        let name = |resolve: &Resolve, id| behind_name(resolve, id);
        let (a, b) = (name(self.guest, a), name(self.host, b));
        (a != b).then(|| format!("{path}: it is a handle to {a:?}, this host has {b:?}"))
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
