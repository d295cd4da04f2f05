//! JSON representation of a component's types.

use serde_json::{Map, Value, json};
use wasmtime::component::Type;
use wasmtime::component::types::ComponentFunc;

/// A type that has a JSON representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    Bool,
    Integer(Width),
    F32,
    F64,
    Char,
    Text,
    /// A list of bytes, encoded in Base64.
    Bytes,
    List(Box<JsonType>),
    Record(Vec<(String, JsonType)>),
    Tuple(Vec<JsonType>),
    Variant(Vec<(String, Option<JsonType>)>),
    Enum(Vec<String>),
    Option(Box<JsonType>),
    Result(Option<Box<JsonType>>, Option<Box<JsonType>>),
    Flags(Vec<String>),
}

/// Width and sign of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
}

/// Direction of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueDirection {
    Argument,
    Result,
}

/// Types of a function's parameters and results.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) parameters: Vec<(String, JsonType)>,
    pub(super) result: Option<JsonType>,
    /// The signature in WIT syntax, without type names.
    pub(super) text: String,
}

/// Maximum number of parts in the types of a function. Types that refer to another twice double at each level.
const PARTS_MAX: usize = 4000;
/// Maximum nesting depth of a type.
const DEPTH_MAX: usize = 48;
/// Maximum number of characters shown of a signature.
const TEXT_CHARACTERS: usize = 1000;

impl Width {
    pub(super) fn range(self) -> (i128, i128) {
        match self {
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::S8 => (i8::MIN.into(), i8::MAX.into()),
            Self::S16 => (i16::MIN.into(), i16::MAX.into()),
            Self::S32 => (i32::MIN.into(), i32::MAX.into()),
            Self::S64 => (i64::MIN.into(), i64::MAX.into()),
        }
    }

    fn schema(self) -> Value {
        let (least, most) = self.range();
        json!({"type": "integer", "minimum": least, "maximum": most})
    }

    fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::S8 => "s8",
            Self::S16 => "s16",
            Self::S32 => "s32",
            Self::S64 => "s64",
        }
    }
}

impl Signature {
    /// # Errors
    ///
    /// A parameter or result has no JSON representation.
    pub(super) fn new(name: &str, function: &ComponentFunc) -> Result<Self, String> {
        if function.async_() {
            return Err(
                "it is asynchronous, which is not supported; export one that is not".to_owned(),
            );
        }
        let mut parts = PARTS_MAX;
        let mut parameters = Vec::new();
        for (parameter, kind) in function.params() {
            let shape = JsonType::new(&kind, DEPTH_MAX, &mut parts)
                .map_err(|problem| format!("its argument {parameter} {problem}"))?;
            parameters.push((parameter.to_owned(), shape));
        }
        let mut result = None;
        for kind in function.results() {
            let shape = JsonType::new(&kind, DEPTH_MAX, &mut parts)
                .map_err(|problem| format!("its result {problem}"))?;
            result = Some(shape);
        }
        let text = signature_text(name, &parameters, result.as_ref());
        Ok(Self {
            parameters,
            result,
            text,
        })
    }

    /// Returns the schema of the arguments, with a description for each.
    pub(super) fn input_schema(&self, meanings: impl Fn(&str) -> Option<String>) -> Value {
        let mut schema = record_schema(&self.parameters, ValueDirection::Argument);
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            if let (Some(meaning), Value::Object(property)) = (meanings(name), property) {
                property.insert("description".to_owned(), meaning.into());
            }
        }
        schema
    }

    /// Returns the schema of the result, unless it is plain text.
    pub(super) fn output_schema(&self) -> Option<Value> {
        let given = match self.result.as_ref()? {
            JsonType::Result(good, _) => good.as_deref()?,
            other => other,
        };
        (!given.is_text()).then(|| given.schema(ValueDirection::Result))
    }
}

impl JsonType {
    fn new(kind: &Type, depth: usize, parts: &mut usize) -> Result<Self, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("is more than {DEPTH_MAX} types deep"));
        };
        *parts = parts
            .checked_sub(1)
            .ok_or_else(|| format!("is of a type of more than {PARTS_MAX} parts"))?;
        let mut shape = |kind: &Type| Self::new(kind, depth, parts);
        Ok(match kind {
            Type::Bool => Self::Bool,
            Type::U8 => Self::Integer(Width::U8),
            Type::U16 => Self::Integer(Width::U16),
            Type::U32 => Self::Integer(Width::U32),
            Type::U64 => Self::Integer(Width::U64),
            Type::S8 => Self::Integer(Width::S8),
            Type::S16 => Self::Integer(Width::S16),
            Type::S32 => Self::Integer(Width::S32),
            Type::S64 => Self::Integer(Width::S64),
            Type::Float32 => Self::F32,
            Type::Float64 => Self::F64,
            Type::Char => Self::Char,
            Type::String => Self::Text,
            Type::List(list) => match list.ty() {
                Type::U8 => Self::Bytes,
                element => Self::List(Box::new(shape(&element)?)),
            },
            Type::Record(record) => Self::Record(
                record
                    .fields()
                    .map(|field| Ok((field.name.to_owned(), shape(&field.ty)?)))
                    .collect::<Result<_, String>>()?,
            ),
            Type::Tuple(tuple) => Self::Tuple(
                tuple
                    .types()
                    .map(|element| shape(&element))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Variant(variant) => Self::Variant(
                variant
                    .cases()
                    .map(|case| {
                        let payload = case.ty.as_ref().map(&mut shape).transpose()?;
                        Ok((case.name.to_owned(), payload))
                    })
                    .collect::<Result<_, String>>()?,
            ),
            Type::Enum(names) => Self::Enum(names.names().map(str::to_owned).collect()),
            Type::Option(option) => Self::Option(Box::new(shape(&option.ty())?)),
            Type::Result(result) => {
                let good = result.ok().as_ref().map(&mut shape).transpose()?;
                let bad = result.err().as_ref().map(&mut shape).transpose()?;
                Self::Result(good.map(Box::new), bad.map(Box::new))
            }
            Type::Flags(flags) => Self::Flags(flags.names().map(str::to_owned).collect()),
            Type::Own(_) | Type::Borrow(_) => {
                return Err("is a resource, which has no JSON form".to_owned());
            }
            Type::Stream(_) => return Err("is a stream, which has no JSON form".to_owned()),
            Type::Future(_) => return Err("is a future, which has no JSON form".to_owned()),
            _ => return Err("is of a type that is not supported".to_owned()),
        })
    }

    /// Returns true if values are sent as plain text instead of JSON.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::Char)
    }

    /// Returns true if one of its values is `null`. An option of such a type is encoded as `{"some": ...}`, since
    /// `null` would be ambiguous.
    pub(super) fn has_null(&self) -> bool {
        matches!(self, Self::Option(_))
    }

    pub(super) fn schema(&self, side: ValueDirection) -> Value {
        match self {
            Self::Bool => json!({"type": "boolean"}),
            Self::Integer(width) => width.schema(),
            // JSON has no number for NaN and the infinities.
            Self::F32 | Self::F64 if side == ValueDirection::Result => json!({
                "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
            }),
            Self::F32 | Self::F64 => json!({"type": "number"}),
            Self::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
            Self::Text => json!({"type": "string"}),
            Self::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
            Self::List(element) => json!({"type": "array", "items": element.schema(side)}),
            Self::Record(fields) => record_schema(fields, side),
            Self::Tuple(elements) => {
                let each: Vec<Value> = elements.iter().map(|one| one.schema(side)).collect();
                let length = each.len();
                json!({"type": "array", "prefixItems": each, "minItems": length, "maxItems": length})
            }
            Self::Variant(cases) => {
                let plain: Vec<&str> = cases
                    .iter()
                    .filter(|(_, payload)| payload.is_none())
                    .map(|(name, _)| &**name)
                    .collect();
                let mut each = Vec::new();
                if !plain.is_empty() {
                    each.push(json!({"type": "string", "enum": plain}));
                }
                for (name, payload) in cases {
                    if let Some(payload) = payload {
                        each.push(tagged(name, &payload.schema(side)));
                    }
                }
                one_of(each)
            }
            Self::Enum(names) => json!({"type": "string", "enum": names}),
            Self::Option(some) if some.has_null() => or_null(tagged("some", &some.schema(side))),
            Self::Option(some) => or_null(some.schema(side)),
            Self::Result(good, bad) => {
                let schema = |shape: &Option<Box<JsonType>>| match shape {
                    Some(shape) => shape.schema(side),
                    None => json!({"type": "null"}),
                };
                one_of(vec![
                    tagged("ok", &schema(good)),
                    tagged("err", &schema(bad)),
                ])
            }
            Self::Flags(names) => json!({
                "type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true,
            }),
        }
    }

    /// Returns the type in WIT syntax, without type names.
    fn text(&self) -> String {
        let plain = match self {
            Self::List(element) => return format!("list<{}>", element.text()),
            Self::Tuple(elements) => {
                let each: Vec<String> = elements.iter().map(Self::text).collect();
                return format!("tuple<{}>", each.join(", "));
            }
            Self::Option(some) => return format!("option<{}>", some.text()),
            Self::Result(Some(good), None) => return format!("result<{}>", good.text()),
            Self::Result(good, Some(bad)) => {
                let good = good.as_ref().map_or("_".to_owned(), |good| good.text());
                return format!("result<{good}, {}>", bad.text());
            }
            Self::Result(None, None) => "result",
            Self::Integer(width) => width.name(),
            Self::Bool => "bool",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Char => "char",
            Self::Text => "string",
            Self::Bytes => "list<u8>",
            Self::Record(_) => "record",
            Self::Variant(_) => "variant",
            Self::Enum(_) => "enum",
            Self::Flags(_) => "flags",
        };
        plain.to_owned()
    }
}

/// Returns the schema of an object with these members.
fn record_schema(fields: &[(String, JsonType)], side: ValueDirection) -> Value {
    let mut properties = Map::new();
    let mut required: Vec<&str> = Vec::new();
    for (name, shape) in fields {
        properties.insert(name.clone(), shape.schema(side));
        // A result contains all members; a caller can omit optional arguments.
        if side == ValueDirection::Result || !shape.has_null() {
            required.push(name);
        }
    }
    let mut schema = json!({"type": "object"});
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// Returns the schema of `{"name": ...}`.
fn tagged(name: &str, schema: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": false,
    })
}

fn one_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        1 => schemas.remove(0),
        _ => json!({ "oneOf": schemas }),
    }
}

fn or_null(mut schema: Value) -> Value {
    let is_plain = schema.get("enum").is_none();
    if let Some(kind) = schema.get_mut("type").filter(|_| is_plain) {
        *kind = json!([kind.take(), "null"]);
        return schema;
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn signature_text(
    name: &str,
    parameters: &[(String, JsonType)],
    result: Option<&JsonType>,
) -> String {
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(parameter, shape)| format!("{parameter}: {}", shape.text()))
        .collect();
    let mut text = format!("{name}({})", parameters.join(", "));
    if let Some(shape) = result {
        text.push_str(&format!(" -> {}", shape.text()));
    }
    text.chars().take(TEXT_CHARACTERS).collect()
}
