//! Selection, names and descriptions of tools.

use super::*;

#[test]
fn operations_become_tools_and_those_that_cannot_are_told_of() {
    for version in ["3.0.3", "3.1.0"] {
        let collector = import_with(petstore(version, "https://api.example.com"), json!({}));
        let names: Vec<&str> = collector
            .offered
            .tools
            .iter()
            .map(|tool| tool.definition().name())
            .collect();
        assert_eq!(
            names,
            [
                "pets_list",
                "pets_create",
                "get_pets_petId",
                "photo",
                "delete",
                "login",
                "lost"
            ],
            "{version}"
        );
        let reasons: Vec<String> = collector
            .offered
            .refused
            .iter()
            .map(|r| format!("{}: {}", r.place, r.problem))
            .collect();
        assert_eq!(reasons.len(), 3, "{reasons:#?}");
        for (reason, part) in
            reasons
                .iter()
                .zip(["leads nowhere", "out of the document", "deepObject"])
        {
            assert!(reason.contains(part), "{reason}");
        }
        // The catalog accepts all of them.
        let catalog =
            Catalog::default().with_offered("api", std::mem::take(&mut { collector }.offered));
        assert_eq!(catalog.len(), 7);
        assert_eq!(catalog.refused().len(), 3, "{:?}", catalog.refused());
    }
}

#[test]
fn what_is_wanted_is_chosen_and_named() {
    let names = |settings: Value| -> Vec<String> {
        let collector = import_with(petstore("3.1.0", "https://api.example.com"), settings);
        collector
            .offered
            .tools
            .iter()
            .map(|tool| tool.definition().name.clone())
            .collect()
    };
    assert_eq!(
        names(json!({"include": {"tags": ["pets"]}})),
        ["pets_list", "pets_create"]
    );
    assert_eq!(
        names(json!({"include": {"tags": ["pets"]}, "exclude": {"methods": ["POST"]}})),
        ["pets_list"]
    );
    assert_eq!(
        names(json!({"include": {"paths": ["/pets/*"]}, "exclude": {"operations": ["del*"]}})),
        ["get_pets_petId", "photo"]
    );
    assert_eq!(
        names(
            json!({"include": {"tags": ["pets"]}, "rename": {"pets.list": "all", "POST /pets": "add"}})
        ),
        ["all", "add"]
    );
    let twice = names(
        json!({"include": {"tags": ["pets"]}, "rename": {"pets.list": "a", "pets.create": "a"}}),
    );
    assert_eq!(twice, ["a", "post_pets"]);
    let short = names(
        json!({"include": {"operations": ["pets.*"]}, "rename": {"pets.list": "x".repeat(100)}, "name_characters": 20}),
    );
    assert_eq!(short.iter().map(String::len).collect::<Vec<_>>(), [20, 11]);
    let wrong = import_with(
        petstore("3.1.0", "https://api.example.com"),
        json!({"rename": {"nonesuch": "x"}}),
    );
    assert!(
        wrong
            .offered
            .refused
            .iter()
            .any(|r| r.place.ends_with("rename.nonesuch"))
    );
    let wrong = import_with(
        petstore("3.1.0", "https://api.example.com"),
        json!({"credentials": {"nonesuch": "x"}}),
    );
    assert!(
        wrong.offered.refused[0].problem.contains("it has key"),
        "{:?}",
        wrong.offered
    );
    let relative = import_with(petstore("3.1.0", "/api"), json!({}));
    assert!(
        relative.offered.refused[0]
            .problem
            .contains("openapi.server"),
        "{:?}",
        relative.offered
    );
}

#[test]
fn what_is_no_such_document_is_refused() {
    for (document, part) in [
        (json!({"swagger": "2.0", "paths": {}}), "Swagger 2.0"),
        (json!({"openapi": "4.0.0", "paths": {}}), "OpenAPI 4.0.0"),
        (json!({"openapi": "3.0.0"}), "no `paths`"),
        (
            json!([]),
            "it is not an OpenAPI document: it has no `openapi`",
        ),
    ] {
        let problem = Document::new(document, None).expect_err("refused");
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn names_of_arguments_are_those_that_model_apis_accept() {
    let long = "x".repeat(70);
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Names", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/{id}": {"get": {
            "operationId": "find",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
                query("filter[status]"), query("$top"), query("id"), query(&long),
                {"name": &long, "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {"200": {"description": "All."}},
        }}},
    });
    let collector = import_with(document, json!({}));
    let properties = schema_of(&collector, "find")["properties"].as_object();
    let names: Vec<_> = properties.expect("an object").keys().collect();
    assert_eq!(names[..4], ["id", "filter_status", "top", "id_query"]);
    assert_eq!(names.len(), 6);
    assert!(names[4..].iter().all(|name| name.len() == 64), "{names:?}");
}

#[test]
fn large_documents_are_imported_whole() {
    for (seed, version) in ["3.0.0", "3.0.3", "3.1.0", "3.1.1", "3.0.2"]
        .into_iter()
        .enumerate()
    {
        let collector = import_with(large(seed, version, 4), json!({}));
        assert_eq!(collector.offered.refused, [], "{version}");
        assert_eq!(collector.offered.tools.len(), 8);
        let catalog = Catalog::default().with_offered("api", collector.offered);
        assert_eq!(catalog.len(), 8, "{:?}", catalog.refused());
    }
}

#[test]
fn entries_of_a_selection_that_match_nothing_are_found() {
    let selection = json!({
        "tags": ["pets", "pest"], "paths": ["/pets*", "/admin/*"], "operations": ["list", "get /pets", "DELETE /pets", "Get *"],
    });
    let selection: Selection = serde_json::from_value(selection).expect("a selection");
    let operations = [("get", "/pets", "list", vec!["pets"])];
    assert_eq!(
        selection.unmatched(&operations),
        [
            ("tags", "pest"),
            ("paths", "/admin/*"),
            ("operations", "DELETE /pets"),
            ("operations", "Get *")
        ]
    );
}

#[test]
fn operations_that_are_not_offered_are_told_of() {
    let operation = json!({"operationId": "x", "tags": ["t"], "responses": {}});
    let mut document = with_responses(&[("a", json!({}))]);
    document["openapi"] = "3.2.0".into();
    document["paths"]["/b"] = json!({
        "trace": operation, "query": operation, "additionalOperations": {"COPY": operation},
    });
    let reported = |settings: Value| refusals(&import_with(document.clone(), settings));
    let all = reported(json!({}));
    let places = ["TRACE /b", "QUERY /b", "COPY /b"];
    assert_eq!(all.len(), 3, "{all:?}");
    for (reported, place) in all.iter().zip(places) {
        assert!(
            reported.contains(place) && reported.contains("not offered"),
            "{reported}"
        );
    }
    assert_eq!(reported(json!({"exclude": {"tags": ["t"]}})), [""; 0]);
}

#[test]
fn an_operation_without_words_is_described_by_its_method_and_path() {
    let collector = import_with(petstore("3.1.0", "https://api.example.com"), json!({}));
    let of = |name: &str| {
        let mut tools = collector.offered.tools.iter();
        let tool = tools.find(|tool| tool.definition().name == name);
        tool.and_then(|tool| tool.definition().description.clone())
    };
    assert_eq!(of("delete").as_deref(), Some("DELETE /pets/{petId}"));
    assert_eq!(
        of("pets_list").as_deref(),
        Some("Lists pets\n\nAll of them.")
    );
}
