//! File format of a graph: JSON lines as in the official reference server, with one object for each entity and each
//! relation.

use serde_json::{Map, Value};

use super::graph::{Entity, Graph, Relation};

/// An invalid line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {problem}")]
pub(super) struct BadLine {
    /// Line number, from 1.
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Parses a file. Empty lines are skipped, and objects of an unknown type are preserved.
pub(super) fn read(file: &[u8]) -> Result<Graph, BadLine> {
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let mut graph = Graph::default();
    for (index, line) in file.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if !line.is_empty() {
            read_line(line, &mut graph).map_err(|problem| BadLine {
                line: index + 1,
                problem,
            })?;
        }
    }
    Ok(graph)
}

fn read_line(line: &[u8], graph: &mut Graph) -> Result<(), String> {
    let object: Value =
        serde_json::from_slice(line).map_err(|e| format!("is not valid JSON: {e}"))?;
    let Value::Object(mut object) = object else {
        return Err("is not a JSON object".to_owned());
    };
    match object.get("type").and_then(Value::as_str) {
        Some("entity") => {
            object.shift_remove("type");
            graph.entities.push(Entity {
                name: text(&mut object, "name")?,
                entity_type: text(&mut object, "entityType")?,
                observations: texts(&mut object, "observations")?,
                others: object,
            });
        }
        Some("relation") => {
            object.shift_remove("type");
            graph.relations.push(Relation {
                from: text(&mut object, "from")?,
                to: text(&mut object, "to")?,
                relation_type: text(&mut object, "relationType")?,
                others: object,
            });
        }
        Some(_) => graph.others.push(Value::Object(object)),
        None => return Err("has no \"type\"".to_owned()),
    }
    Ok(())
}

fn text(object: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match object.shift_remove(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(format!("has no string {name:?}")),
    }
}

fn texts(object: &mut Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("has something else than texts in {name:?}");
    match object.shift_remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => {
            let texts = values.into_iter().map(|value| match value {
                Value::String(text) => Ok(text),
                _ => Err(wrong()),
            });
            texts.collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// Formats a graph as a file.
pub(super) fn write(graph: &Graph) -> String {
    let entities = graph.entities.iter().map(|entity| {
        line(
            "entity",
            [
                ("name", Value::from(&*entity.name)),
                ("entityType", Value::from(&*entity.entity_type)),
                ("observations", Value::from(entity.observations.clone())),
            ],
            &entity.others,
        )
    });
    let relations = graph.relations.iter().map(|relation| {
        line(
            "relation",
            [
                ("from", Value::from(&*relation.from)),
                ("to", Value::from(&*relation.to)),
                ("relationType", Value::from(&*relation.relation_type)),
            ],
            &relation.others,
        )
    });
    let others = graph.others.iter().map(Value::to_string);
    let lines: Vec<String> = entities.chain(relations).chain(others).collect();
    lines.join("\n")
}

fn line<const N: usize>(
    kind: &str,
    members: [(&str, Value); N],
    others: &Map<String, Value>,
) -> String {
    let members = members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let mut object: Map<String, Value> = [("type".to_owned(), Value::from(kind))]
        .into_iter()
        .chain(members)
        .collect();
    object.extend(
        others
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"{"type":"entity","name":"Ada","entityType":"person","observations":["likes \"engines\"","é"]}
{"type":"entity","name":"Charles","entityType":"person","observations":[],"since":1791}
{"type":"relation","from":"Ada","to":"Charles","relationType":"knows","how":{"well":true}}
{"type":"note","text":"kept"}"#;

    #[test]
    fn a_file_is_written_as_it_was_read() {
        let graph = read(FILE.as_bytes()).expect("a graph");
        assert_eq!(
            (
                graph.entities.len(),
                graph.relations.len(),
                graph.others.len()
            ),
            (2, 1, 1)
        );
        assert_eq!(write(&graph), FILE);
        let loose = format!("\u{feff}\n  {}  \r\n\n\n", FILE.replace('\n', "\r\n\r\n"));
        assert_eq!(read(loose.as_bytes()), Ok(graph));
        assert_eq!(read(b""), Ok(Graph::default()));
        assert_eq!(write(&Graph::default()), "");
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        for (line, problem) in [
            ("{", "is not valid JSON: "),
            ("[]", "is not a JSON object"),
            ("{}", "has no \"type\""),
            (r#"{"type":7}"#, "has no \"type\""),
            (
                r#"{"type":"entity","entityType":"t","observations":[]}"#,
                "has no string \"name\"",
            ),
            (
                r#"{"type":"entity","name":"n","entityType":null}"#,
                "has no string \"entityType\"",
            ),
            (
                r#"{"type":"entity","name":"n","entityType":"t","observations":[1]}"#,
                "else than texts in \"observations\"",
            ),
            (
                r#"{"type":"entity","name":"n","entityType":"t","observations":"o"}"#,
                "else than texts in \"observations\"",
            ),
            (
                r#"{"type":"relation","from":"a","to":"b"}"#,
                "has no string \"relationType\"",
            ),
            (
                "{\"type\":\"entity\",\"name\":\"\u{0}\"}",
                "is not valid JSON",
            ),
        ] {
            let error = read(format!("{FILE}\n\n{line}\n{{").as_bytes()).expect_err(line);
            assert_eq!(error.line, 6, "{line}");
            assert!(error.problem.contains(problem), "{line}: {error}");
        }
        assert_eq!(read(b"\n\xff").map_err(|e| e.line), Err(2));
    }

    proptest! {
        #[test]
        fn whatever_is_remembered_is_read_again(names in prop::collection::vec(any::<String>(), 0..6), more in prop::collection::vec(any::<String>(), 0..4)) {
            let graph = Graph {
                entities: names.iter().map(|name| Entity {
                    name: name.clone(),
                    entity_type: name.chars().rev().collect(),
                    observations: more.clone(),
                    others: Map::new(),
                }).collect(),
                relations: names.iter().zip(&more).map(|(from, to)| Relation {
                    from: from.clone(),
                    to: to.clone(),
                    relation_type: to.clone(),
                    others: Map::new(),
                }).collect(),
                others: Vec::new(),
            };
            prop_assert_eq!(read(write(&graph).as_bytes()), Ok(graph));
        }
    }
}
