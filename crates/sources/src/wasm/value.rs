//! Conversion between JSON and component values.

use std::fmt;
use std::io::{self, Write};

use data_encoding::BASE64;
use serde::ser::{Error as _, SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use wasmtime::component::Val;

use super::shape::{JsonType, Width};

/// An argument that does not conform to its type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentMismatch {
    /// Path to the value, innermost first.
    path: Vec<String>,
    problem: String,
}

/// Remaining memory for values, which take more of it than their text.
#[derive(Debug)]
pub(super) struct MemoryBudget(usize);

/// Error for a result that exceeds the maximum size.
#[derive(Debug)]
pub(super) struct TooLarge;

type Lowered = Result<Val, ArgumentMismatch>;

impl ArgumentMismatch {
    fn new(problem: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            problem: problem.into(),
        }
    }

    fn at(mut self, place: impl Into<String>) -> Self {
        self.path.push(place.into());
        self
    }
}

impl fmt::Display for ArgumentMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
            write!(f, "{}: ", path.join("."))?;
        }
        f.write_str(&self.problem)
    }
}

impl MemoryBudget {
    /// Creates a budget for values of `bytes` in total.
    pub(super) fn new(bytes: usize) -> Self {
        Self(bytes / size_of::<Val>())
    }

    fn take(&mut self, values: usize) -> Result<(), ArgumentMismatch> {
        self.0 = self.0.checked_sub(values).ok_or_else(|| {
            ArgumentMismatch::new("with this the arguments are larger than the component's memory")
        })?;
        Ok(())
    }
}

/// Converts the arguments of a call, in their order.
///
/// # Errors
///
/// An argument does not conform to its type, or is missing.
pub(super) fn lower_all(
    parameters: &[(String, JsonType)],
    arguments: &Map<String, Value>,
    room: &mut MemoryBudget,
) -> Result<Vec<Val>, ArgumentMismatch> {
    parameters
        .iter()
        .map(|(name, shape)| member(arguments, name, shape, room))
        .collect()
}

fn member(
    object: &Map<String, Value>,
    name: &str,
    shape: &JsonType,
    room: &mut MemoryBudget,
) -> Lowered {
    let lowered = match object.get(name) {
        Some(value) => lower(shape, value, room),
        None if shape.has_null() => Ok(Val::Option(None)),
        None => Err(ArgumentMismatch::new("it is missing")),
    };
    lowered.map_err(|misfit| misfit.at(name))
}

/// Converts a JSON value to a component value.
pub(super) fn lower(shape: &JsonType, value: &Value, room: &mut MemoryBudget) -> Lowered {
    room.take(1)?;
    match shape {
        JsonType::Bool => value
            .as_bool()
            .map(Val::Bool)
            .ok_or_else(|| expected("true or false")),
        JsonType::Integer(width) => integer(*width, value),
        JsonType::F32 => single_float(value),
        JsonType::F64 => value
            .as_f64()
            .map(Val::Float64)
            .ok_or_else(|| expected("a number")),
        JsonType::Char => character(value),
        JsonType::Text => {
            let text = value.as_str().ok_or_else(|| expected("a text"))?;
            room.take(text.len() / size_of::<Val>())?;
            Ok(Val::String(text.to_owned()))
        }
        JsonType::Bytes => bytes(value, room),
        JsonType::List(element) => {
            let values = value.as_array().ok_or_else(|| expected("a list"))?;
            let each = values.iter().map(|value| (&**element, value));
            lower_each(each, room).map(Val::List)
        }
        JsonType::Record(fields) => record(fields, value, room),
        JsonType::Tuple(shapes) => tuple(shapes, value, room),
        JsonType::Variant(cases) => variant(cases, value, room),
        JsonType::Enum(names) => {
            let name = known_name(names, value);
            let name = name.ok_or_else(|| expected(format!("one of {}", names.join(", "))))?;
            Ok(Val::Enum(name.clone()))
        }
        JsonType::Option(_) if value.is_null() => Ok(Val::Option(None)),
        JsonType::Option(some) => {
            let value = match some.has_null() {
                false => value,
                true => single(value, "some").ok_or_else(|| expected("null or {\"some\": ...}"))?,
            };
            Ok(Val::Option(Some(Box::new(lower(some, value, room)?))))
        }
        JsonType::Result(good, bad) => result(good, bad, value, room),
        JsonType::Flags(known) => flags(known, value),
    }
}

fn single_float(value: &Value) -> Lowered {
    let number = value.as_f64().ok_or_else(|| expected("a number"))?;
    #[expect(clippy::cast_possible_truncation, reason = "to the nearest one")]
    let single = number as f32;
    if single.is_infinite() {
        return Err(ArgumentMismatch::new(
            "it is too large for a float of 32 bits",
        ));
    }
    Ok(Val::Float32(single))
}

fn character(value: &Value) -> Lowered {
    let text = value.as_str().ok_or_else(|| expected("one character"))?;
    let mut all = text.chars();
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(Val::Char(one)),
        _ => Err(expected("one character")),
    }
}

fn bytes(value: &Value, room: &mut MemoryBudget) -> Lowered {
    let text = value.as_str().ok_or_else(|| expected("Base64"))?;
    room.take(text.len() / 4 * 3)?;
    let bytes = BASE64
        .decode(text.as_bytes())
        .map_err(|_| ArgumentMismatch::new("it is not Base64 with padding"))?;
    Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
}

fn record(fields: &[(String, JsonType)], value: &Value, room: &mut MemoryBudget) -> Lowered {
    let object = value.as_object().ok_or_else(|| expected("an object"))?;
    let unknown = object
        .keys()
        .find(|key| fields.iter().all(|(name, _)| name != *key));
    if let Some(unknown) = unknown {
        return Err(ArgumentMismatch::new("it has no such member").at(unknown));
    }
    let mut record = Vec::with_capacity(fields.len());
    for (name, shape) in fields {
        record.push((name.clone(), member(object, name, shape, room)?));
    }
    Ok(Val::Record(record))
}

fn tuple(shapes: &[JsonType], value: &Value, room: &mut MemoryBudget) -> Lowered {
    let values = value.as_array().ok_or_else(|| expected("a list"))?;
    if values.len() != shapes.len() {
        return Err(ArgumentMismatch::new(format!(
            "it must have {} values",
            shapes.len()
        )));
    }
    lower_each(shapes.iter().zip(values), room).map(Val::Tuple)
}

/// Converts the elements of a list or a tuple.
fn lower_each<'v>(
    elements: impl Iterator<Item = (&'v JsonType, &'v Value)>,
    room: &mut MemoryBudget,
) -> Result<Vec<Val>, ArgumentMismatch> {
    let lowered = elements.enumerate().map(|(position, (shape, value))| {
        lower(shape, value, room).map_err(|misfit| misfit.at(position.to_string()))
    });
    lowered.collect()
}

fn variant(
    cases: &[(String, Option<JsonType>)],
    value: &Value,
    room: &mut MemoryBudget,
) -> Lowered {
    let (name, payload) = case_of(value)?;
    let case = cases.iter().find(|(case, _)| case == name);
    let (_, shape) = case.ok_or_else(|| ArgumentMismatch::new("it has no such case").at(name))?;
    let payload = match (shape, payload) {
        (None, None) => None,
        (Some(shape), Some(payload)) => {
            let lowered = lower(shape, payload, room);
            Some(Box::new(lowered.map_err(|misfit| misfit.at(name))?))
        }
        (None, Some(_)) => {
            return Err(expected("the case's name alone, as a text").at(name));
        }
        (Some(_), None) => {
            return Err(expected("an object with the case's value").at(name));
        }
    };
    Ok(Val::Variant(name.to_owned(), payload))
}

fn result(
    good: &Option<Box<JsonType>>,
    bad: &Option<Box<JsonType>>,
    value: &Value,
    room: &mut MemoryBudget,
) -> Lowered {
    let mut side = |shape: &Option<Box<JsonType>>, value: &Value| match shape {
        Some(shape) => Ok(Some(Box::new(lower(shape, value, room)?))),
        None if value.is_null() => Ok(None),
        None => Err(expected("null")),
    };
    match (single(value, "ok"), single(value, "err")) {
        (Some(value), _) => {
            let good = side(good, value).map_err(|misfit| misfit.at("ok"))?;
            Ok(Val::Result(Ok(good)))
        }
        (_, Some(value)) => {
            let bad = side(bad, value).map_err(|misfit| misfit.at("err"))?;
            Ok(Val::Result(Err(bad)))
        }
        _ => Err(expected("{\"ok\": ...} or {\"err\": ...}")),
    }
}

fn flags(known: &[String], value: &Value) -> Lowered {
    let values = value
        .as_array()
        .ok_or_else(|| expected("a list of names"))?;
    let mut flags: Vec<String> = Vec::new();
    for value in values {
        let name = known_name(known, value);
        let name = name.ok_or_else(|| expected(format!("some of {}", known.join(", "))))?;
        // Only known flags are kept, so the list is bounded.
        if !flags.contains(name) {
            flags.push(name.clone());
        }
    }
    Ok(Val::Flags(flags))
}

fn known_name<'n>(names: &'n [String], value: &Value) -> Option<&'n String> {
    names.iter().find(|name| *value == name.as_str())
}

fn expected(what: impl fmt::Display) -> ArgumentMismatch {
    ArgumentMismatch::new(format!("it must be {what}"))
}

/// Parses a variant case: `"name"`, or `{"name": payload}`.
fn case_of(value: &Value) -> Result<(&str, Option<&Value>), ArgumentMismatch> {
    if let Some(name) = value.as_str() {
        return Ok((name, None));
    }
    let mut members = value.as_object().into_iter().flatten();
    match (members.next(), members.next()) {
        (Some((name, payload)), None) => Ok((name, Some(payload))),
        _ => Err(expected("a case's name, or an object with that one member")),
    }
}

/// Returns the value of a name in an object that has no other members.
fn single<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get(name)
}

fn integer(width: Width, value: &Value) -> Lowered {
    /// Largest float up to which all integers are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = match (value.as_i64(), value.as_u64(), value.as_f64()) {
        (Some(number), _, _) => Some(i128::from(number)),
        (_, Some(number), _) => Some(i128::from(number)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and not that large"
        )]
        (_, _, Some(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
            Some(number as i128)
        }
        _ => None,
    };
    let (least, most) = width.range();
    let misfit = || expected(format!("a whole number from {least} to {most}"));
    let number = whole.ok_or_else(misfit)?;
    let made = match width {
        Width::U8 => number.try_into().map(Val::U8),
        Width::U16 => number.try_into().map(Val::U16),
        Width::U32 => number.try_into().map(Val::U32),
        Width::U64 => number.try_into().map(Val::U64),
        Width::S8 => number.try_into().map(Val::S8),
        Width::S16 => number.try_into().map(Val::S16),
        Width::S32 => number.try_into().map(Val::S32),
        Width::S64 => number.try_into().map(Val::S64),
    };
    made.map_err(|_| misfit())
}

/// Converts a component value to JSON text.
///
/// # Errors
///
/// The text would be longer than `max` bytes.
pub(super) fn to_json(shape: &JsonType, value: &Val, max: usize) -> Result<String, TooLarge> {
    let mut bounded = Bounded {
        bytes: Vec::new(),
        max,
    };
    serde_json::to_writer(&mut bounded, &Lifted { shape, value }).map_err(|_| TooLarge)?;
    String::from_utf8(bounded.bytes).map_err(|_| TooLarge)
}

/// Writer that accepts at most `max` bytes.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.max - self.bytes.len() < bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A value with its type.
struct Lifted<'a> {
    shape: &'a JsonType,
    value: &'a Val,
}

impl<'a> Lifted<'a> {
    fn new(shape: &'a JsonType, value: &'a Val) -> Self {
        Self { shape, value }
    }
}

impl Serialize for Lifted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.shape, self.value) {
            (JsonType::Bool, Val::Bool(value)) => serializer.serialize_bool(*value),
            (JsonType::Integer(_), Val::U8(value)) => serializer.serialize_u8(*value),
            (JsonType::Integer(_), Val::U16(value)) => serializer.serialize_u16(*value),
            (JsonType::Integer(_), Val::U32(value)) => serializer.serialize_u32(*value),
            (JsonType::Integer(_), Val::U64(value)) => serializer.serialize_u64(*value),
            (JsonType::Integer(_), Val::S8(value)) => serializer.serialize_i8(*value),
            (JsonType::Integer(_), Val::S16(value)) => serializer.serialize_i16(*value),
            (JsonType::Integer(_), Val::S32(value)) => serializer.serialize_i32(*value),
            (JsonType::Integer(_), Val::S64(value)) => serializer.serialize_i64(*value),
            (JsonType::F32, Val::Float32(value)) if value.is_finite() => {
                serializer.serialize_f32(*value)
            }
            (JsonType::F32, Val::Float32(value)) => {
                serializer.serialize_str(no_number(f64::from(*value)))
            }
            (JsonType::F64, Val::Float64(value)) if value.is_finite() => {
                serializer.serialize_f64(*value)
            }
            (JsonType::F64, Val::Float64(value)) => serializer.serialize_str(no_number(*value)),
            (JsonType::Char, Val::Char(value)) => serializer.serialize_char(*value),
            (JsonType::Text, Val::String(value)) => serializer.serialize_str(value),
            (JsonType::Bytes, Val::List(values)) => serializer.serialize_str(&base64(values)),
            (JsonType::List(shape), Val::List(values)) => {
                serializer.collect_seq(values.iter().map(|value| Lifted::new(shape, value)))
            }
            (JsonType::Record(shapes), Val::Record(fields)) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for ((_, shape), (name, value)) in shapes.iter().zip(fields) {
                    map.serialize_entry(name, &Lifted::new(shape, value))?;
                }
                map.end()
            }
            (JsonType::Tuple(shapes), Val::Tuple(values)) => {
                let mut sequence = serializer.serialize_seq(Some(values.len()))?;
                for (shape, value) in shapes.iter().zip(values) {
                    sequence.serialize_element(&Lifted::new(shape, value))?;
                }
                sequence.end()
            }
            (JsonType::Variant(cases), Val::Variant(name, payload)) => {
                let case = cases.iter().find(|(case, _)| case == name);
                match (case, payload) {
                    (Some((_, Some(shape))), Some(value)) => {
                        serializer.collect_map([(name, Lifted::new(shape, value))])
                    }
                    (Some((_, None)), None) => serializer.serialize_str(name),
                    _ => Err(S::Error::custom("a case that is none of the type's")),
                }
            }
            (JsonType::Enum(_), Val::Enum(name)) => serializer.serialize_str(name),
            (JsonType::Option(_), Val::Option(None)) => serializer.serialize_unit(),
            (JsonType::Option(some), Val::Option(Some(value))) => {
                let value = Lifted::new(some, value);
                match some.has_null() {
                    false => value.serialize(serializer),
                    true => serializer.collect_map([("some", value)]),
                }
            }
            (JsonType::Result(good, bad), Val::Result(value)) => {
                let (name, shape, value) = match value {
                    Ok(value) => ("ok", good, value),
                    Err(value) => ("err", bad, value),
                };
                let value = shape.as_deref().zip(value.as_deref());
                let value = value.map(|(shape, value)| Lifted::new(shape, value));
                serializer.collect_map([(name, value)])
            }
            (JsonType::Flags(_), Val::Flags(names)) => serializer.collect_seq(names),
            _ => Err(S::Error::custom("a value that is not of its type")),
        }
    }
}

/// Returns the JSON string for NaN or an infinity.
fn no_number(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn base64(values: &[Val]) -> String {
    let bytes: Vec<u8> = values
        .iter()
        .map(|value| match value {
            Val::U8(byte) => *byte,
            _ => 0,
        })
        .collect();
    BASE64.encode(&bytes)
}
