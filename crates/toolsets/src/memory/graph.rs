//! Knowledge graph of entities, observations and relations. This module knows nothing about files or callers.

use std::collections::{HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::MemoryConfig;
use crate::text::cut;

/// An entity.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entity {
    /// The name of the entity
    pub(super) name: String,
    /// The type of the entity
    pub(super) entity_type: String,
    /// An array of observation contents associated with the entity
    pub(super) observations: Vec<String>,
    /// Unknown members of its line, which are preserved.
    #[serde(skip)]
    pub(super) others: Map<String, Value>,
}

/// A relation between two entities.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Relation {
    /// The name of the entity where the relation starts
    pub(super) from: String,
    /// The name of the entity where the relation ends
    pub(super) to: String,
    /// The type of the relation
    pub(super) relation_type: String,
    /// Unknown members of its line, which are preserved.
    #[serde(skip)]
    pub(super) others: Map<String, Value>,
}

/// New observations about an entity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Addition {
    /// The name of the entity to add the observations to
    pub(super) entity_name: String,
    /// An array of observation contents to add
    pub(super) contents: Vec<String>,
}

/// Observations that were added.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Added {
    pub(super) entity_name: String,
    pub(super) added_observations: Vec<String>,
}

/// Observations to delete from an entity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Deletion {
    /// The name of the entity containing the observations
    pub(super) entity_name: String,
    /// An array of observations to delete
    pub(super) observations: Vec<String>,
}

/// A part of a graph, as returned to callers.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Part {
    pub(super) entities: Vec<Entity>,
    pub(super) relations: Vec<Relation>,
}

/// A knowledge graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Graph {
    pub(super) entities: Vec<Entity>,
    pub(super) relations: Vec<Relation>,
    /// Lines of its file of other types, which are preserved.
    pub(super) others: Vec<Value>,
}

/// Size limits of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) entities: usize,
    pub(super) relations: usize,
    pub(super) observations: usize,
}

/// Reason why an addition was rejected as a whole.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GraphError {
    #[error("Entity with name {name} not found")]
    NoEntity { name: String },
    #[error(
        "the graph would have {count} entities; it may have {max}. Delete some that are no longer needed"
    )]
    Entities { count: usize, max: usize },
    #[error(
        "the graph would have {count} relations; it may have {max}. Delete some that are no longer needed"
    )]
    Relations { count: usize, max: usize },
    #[error(
        "{name} would have {count} observations; an entity may have {max}. Delete some, or put them into fewer words"
    )]
    Observations {
        name: String,
        count: usize,
        max: usize,
    },
}

impl Bounds {
    pub(super) fn of(config: &MemoryConfig) -> Self {
        Self {
            entities: config.max_entities,
            relations: config.max_relations,
            observations: config.max_observations,
        }
    }

    fn check_observations(&self, entity: &Entity) -> Result<(), GraphError> {
        let count = entity.observations.len();
        if count <= self.observations {
            return Ok(());
        }
        Err(GraphError::Observations {
            name: shown(&entity.name),
            count,
            max: self.observations,
        })
    }
}

impl Graph {
    /// Adds entities whose names are new, and returns them.
    pub(super) fn create_entities(
        &mut self,
        entities: &[Entity],
        bounds: &Bounds,
    ) -> Result<Vec<Entity>, GraphError> {
        let mut names: HashSet<&str> = self.entities.iter().map(|entity| &*entity.name).collect();
        let new: Vec<Entity> = entities
            .iter()
            .filter(|entity| names.insert(&entity.name))
            .cloned()
            .collect();
        new.iter()
            .try_for_each(|entity| bounds.check_observations(entity))?;
        let count = self.entities.len() + new.len();
        if !new.is_empty() && bounds.entities < count {
            return Err(GraphError::Entities {
                count,
                max: bounds.entities,
            });
        }
        self.entities.extend(new.iter().cloned());
        Ok(new)
    }

    /// Adds new relations, and returns them. The entities that they relate do not have to exist.
    pub(super) fn create_relations(
        &mut self,
        relations: &[Relation],
        bounds: &Bounds,
    ) -> Result<Vec<Relation>, GraphError> {
        let mut known: HashSet<_> = self.relations.iter().map(Relation::key).collect();
        let new: Vec<Relation> = relations
            .iter()
            .filter(|relation| known.insert(relation.key()))
            .cloned()
            .collect();
        let count = self.relations.len() + new.len();
        if !new.is_empty() && bounds.relations < count {
            return Err(GraphError::Relations {
                count,
                max: bounds.relations,
            });
        }
        self.relations.extend(new.iter().cloned());
        Ok(new)
    }

    /// Adds new observations, and returns them.
    pub(super) fn add_observations(
        &mut self,
        additions: Vec<Addition>,
        bounds: &Bounds,
    ) -> Result<Vec<Added>, GraphError> {
        // Of two entities with one name, the first one counts.
        let mut places = HashMap::with_capacity(self.entities.len());
        for (place, entity) in self.entities.iter().enumerate() {
            places.entry(entity.name.clone()).or_insert(place);
        }
        let mut known: HashMap<usize, HashSet<String>> = HashMap::new();
        let mut all = Vec::with_capacity(additions.len());
        for addition in additions {
            let Some(place) = places.get(&addition.entity_name) else {
                return Err(GraphError::NoEntity {
                    name: shown(&addition.entity_name),
                });
            };
            let entity = &mut self.entities[*place];
            let known = known
                .entry(*place)
                .or_insert_with(|| entity.observations.iter().cloned().collect());
            let mut contents = addition.contents;
            contents.retain(|content| known.insert(content.clone()));
            if !contents.is_empty() {
                entity.observations.extend(contents.iter().cloned());
                bounds.check_observations(entity)?;
            }
            all.push(Added {
                entity_name: addition.entity_name,
                added_observations: contents,
            });
        }
        Ok(all)
    }

    /// Deletes entities with all of their relations.
    pub(super) fn delete_entities(&mut self, names: &[String]) {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        self.entities
            .retain(|entity| !names.contains(&*entity.name));
        self.relations
            .retain(|relation| !names.contains(&*relation.from) && !names.contains(&*relation.to));
    }

    pub(super) fn delete_observations(&mut self, deletions: &[Deletion]) {
        let mut gone: HashMap<&str, HashSet<&str>> = HashMap::new();
        for deletion in deletions {
            let of_entity = gone.entry(&deletion.entity_name).or_default();
            of_entity.extend(deletion.observations.iter().map(String::as_str));
        }
        for entity in &mut self.entities {
            if let Some(gone) = gone.remove(&*entity.name) {
                entity
                    .observations
                    .retain(|observation| !gone.contains(&**observation));
            }
        }
    }

    pub(super) fn delete_relations(&mut self, relations: &[Relation]) {
        let gone: HashSet<_> = relations.iter().map(Relation::key).collect();
        self.relations
            .retain(|relation| !gone.contains(&relation.key()));
    }

    /// Returns the whole graph.
    pub(super) fn whole(self) -> Part {
        Part {
            entities: self.entities,
            relations: self.relations,
        }
    }

    /// Returns the entities whose name, type or observations contain a text, ignoring case, with their relations.
    pub(super) fn search(self, query: &str) -> Part {
        let query = query.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&query);
        self.part(|entity| {
            has(&entity.name)
                || has(&entity.entity_type)
                || entity.observations.iter().any(|o| has(o))
        })
    }

    /// Returns entities by name, with their relations.
    pub(super) fn open(self, names: &[String]) -> Part {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        self.part(|entity| names.contains(&*entity.name))
    }

    fn part(mut self, shows: impl Fn(&Entity) -> bool) -> Part {
        self.entities.retain(shows);
        let names: HashSet<&str> = self.entities.iter().map(|entity| &*entity.name).collect();
        self.relations
            .retain(|relation| names.contains(&*relation.from) || names.contains(&*relation.to));
        Part {
            entities: self.entities,
            relations: self.relations,
        }
    }
}

impl Relation {
    fn key(&self) -> (&str, &str, &str) {
        (&self.from, &self.to, &self.relation_type)
    }
}

/// Shortens untrusted text for messages.
fn shown(text: &str) -> String {
    cut(text, 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        entities: 3,
        relations: 2,
        observations: 2,
    };

    fn entity(name: &str, observations: &[&str]) -> Entity {
        Entity {
            name: name.to_owned(),
            entity_type: "Person".to_owned(),
            observations: observations.iter().map(|o| (*o).to_owned()).collect(),
            others: Map::new(),
        }
    }

    fn relation(from: &str, to: &str) -> Relation {
        Relation {
            from: from.to_owned(),
            to: to.to_owned(),
            relation_type: "knows".to_owned(),
            others: Map::new(),
        }
    }

    fn names(entities: &[Entity]) -> Vec<&str> {
        entities.iter().map(|entity| &*entity.name).collect()
    }

    fn graph() -> Graph {
        let mut graph = Graph::default();
        graph
            .create_entities(
                &[entity("Ada", &["likes engines"]), entity("Charles", &[])],
                &BOUNDS,
            )
            .expect("room");
        graph
            .create_relations(&[relation("Ada", "Charles")], &BOUNDS)
            .expect("room");
        graph
    }

    #[test]
    fn what_is_known_is_not_added_twice() {
        let mut graph = graph();
        let new = graph.create_entities(
            &[
                entity("Ada", &["other"]),
                entity("Mary", &[]),
                entity("Mary", &["x"]),
            ],
            &BOUNDS,
        );
        assert_eq!(names(&new.expect("room")), ["Mary"]);
        assert_eq!(names(&graph.entities), ["Ada", "Charles", "Mary"]);
        assert_eq!(graph.entities[0].observations, ["likes engines"]);
        let new = graph.create_relations(
            &[
                relation("Ada", "Charles"),
                relation("Charles", "nobody"),
                relation("Charles", "nobody"),
            ],
            &BOUNDS,
        );
        assert_eq!(new.expect("room"), [relation("Charles", "nobody")]);
        let added = graph.add_observations(
            vec![Addition {
                entity_name: "Ada".to_owned(),
                contents: ["likes engines", "writes", "writes"]
                    .map(str::to_owned)
                    .into(),
            }],
            &BOUNDS,
        );
        assert_eq!(added.expect("room")[0].added_observations, ["writes"]);
    }

    #[test]
    fn a_graph_grows_up_to_its_bounds_and_not_beyond() {
        let before = graph();
        let mut full = before.clone();
        let error = full
            .create_entities(&[entity("a", &[]), entity("b", &[])], &BOUNDS)
            .expect_err("too many");
        assert_eq!(error, GraphError::Entities { count: 4, max: 3 });
        let error = full
            .create_entities(&[entity("a", &["1", "2", "3"])], &BOUNDS)
            .expect_err("too many");
        assert_eq!(
            error,
            GraphError::Observations {
                name: "a".to_owned(),
                count: 3,
                max: 2
            }
        );
        let error = full
            .create_relations(&[relation("a", "b"), relation("b", "c")], &BOUNDS)
            .expect_err("too many");
        assert_eq!(error, GraphError::Relations { count: 3, max: 2 });
        assert_eq!(full, before, "nothing was added");
        let add = |name: &str, contents: [&str; 2]| Addition {
            entity_name: name.to_owned(),
            contents: contents.map(str::to_owned).into(),
        };
        let error = full
            .add_observations(vec![add("Ada", ["1", "2"])], &BOUNDS)
            .expect_err("too many");
        assert_eq!(
            error,
            GraphError::Observations {
                name: "Ada".to_owned(),
                count: 3,
                max: 2
            }
        );
        let error = before
            .clone()
            .add_observations(vec![add("Nobody", ["1", "2"])], &BOUNDS)
            .expect_err("nobody");
        assert_eq!(error.to_string(), "Entity with name Nobody not found");
        // What is over a bound already can be looked after all the same.
        let tight = Bounds {
            entities: 1,
            relations: 0,
            observations: 0,
        };
        assert_eq!(
            before
                .clone()
                .create_entities(&[entity("Ada", &[])], &tight),
            Ok(Vec::new())
        );
        assert_eq!(
            before
                .clone()
                .create_relations(&[relation("Ada", "Charles")], &tight),
            Ok(Vec::new())
        );
    }

    #[test]
    fn what_is_deleted_takes_its_relations_along() {
        let mut one = graph();
        one.delete_entities(&["Charles".to_owned(), "Nobody".to_owned()]);
        assert_eq!(
            (names(&one.entities), one.relations.len()),
            (vec!["Ada"], 0)
        );
        let mut one = graph();
        let gone = |name: &str| Deletion {
            entity_name: name.to_owned(),
            observations: vec!["likes engines".to_owned()],
        };
        one.delete_observations(&[gone("Ada"), gone("Nobody")]);
        assert!(one.entities[0].observations.is_empty());
        one.delete_relations(&[relation("Ada", "Charles"), relation("x", "y")]);
        assert!(one.relations.is_empty());
    }

    #[test]
    fn names_types_and_observations_are_searched_in_any_case() {
        for (query, found) in [
            ("ADA", &["Ada"][..]),
            ("person", &["Ada", "Charles"]),
            ("Engines", &["Ada"]),
            ("", &["Ada", "Charles"]),
            ("nothing", &[]),
        ] {
            let part = graph().search(query);
            assert_eq!(names(&part.entities), found, "{query}");
            assert_eq!(part.relations.is_empty(), found.is_empty(), "{query}");
        }
        let part = graph().open(&["Charles".to_owned(), "Nobody".to_owned()]);
        assert_eq!(names(&part.entities), ["Charles"]);
        assert_eq!(part.relations, [relation("Ada", "Charles")]);
    }
}
