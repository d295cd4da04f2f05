use super::*;

#[test]
fn a_whole_number_is_an_integer_however_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    std::fs::write(&path, "").expect("written");
    let config: SqlConfig = serde_json::from_value(json!({
        "databases": [{"name": "shop", "sqlite": path}],
        "queries": [{
            "name": "sum",
            "arguments": {
                "id": {"type": "integer"},
                "least": {"type": "number"},
                "ids": {"type": "array", "items": "integer"},
                "note": {"optional": true},
            },
            "sql": "SELECT :id, :least, :ids, :note",
        }],
    }))
    .expect("a configuration");
    let hits = SectionHits::default();
    let database = Database::new(&config.databases[0], &config, &hits, &Background::new());
    let databases = [Arc::new(database.expect("a database"))];
    let tool = named(&config.queries[0], &databases).expect("a tool");
    let values = |arguments: Value| {
        let arguments = arguments.as_object().expect("an object");
        let question = tool.plan.question(&databases[0], arguments);
        question.expect("a question").values
    };
    assert_eq!(
        values(json!({"id": 5.0, "least": 2.50, "ids": [1.0, 2], "note": "5.0"})),
        [json!(5), json!(2.5), json!([1, 2]), json!("5.0")]
    );
    assert_eq!(
        values(json!({"id": -3e2, "least": 2.0, "ids": []})),
        [json!(-300), json!(2), json!([]), json!(null)]
    );
}
