use serde_json::json;

use super::super::placeholder::Statement;
use super::*;

fn at(url: &str) -> Result<Postgres, (&'static str, String)> {
    Postgres::new(
        "shop",
        &Secret::from(url.to_owned()),
        None,
        &SqlLimits::default(),
        SectionHits::default(),
        Background::new(),
    )
}

#[test]
fn a_url_is_never_repeated() {
    for url in [
        "postgres://me:hunter2@host:port/shop",
        "mysql://me:hunter2@host/shop",
        "postgres://",
        "hunter2",
    ] {
        let (setting, problem) = at(url).expect_err(url);
        assert_eq!(setting, ".postgres");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    let postgres = at("postgres://me:hunter2@host/shop").expect("a URL");
    assert!(!format!("{postgres:?}").contains("hunter2"));
}

#[test]
fn columns_of_one_name_are_numbered_and_bytes_are_encoded() {
    let limits = SqlLimits {
        rows: 10,
        result_bytes: 100,
        ..SqlLimits::default()
    };
    let columns = [
        ("id", Type::INT4),
        ("id", Type::TEXT),
        ("a\"b", Type::BYTEA),
    ];
    let expected = "SELECT left(row_to_json(longshore.*)::text, 101) FROM (SELECT c0 AS \"id\", c1 AS \"id_2\", \
                    translate(encode(c2, 'base64'), E'\\n', '') AS \"a\"\"b\" FROM (\nSELECT 1 -- x\n) \
                    AS asked (c0, c1, c2)) AS longshore LIMIT 11";
    assert_eq!(as_json("SELECT 1 -- x", &columns, &limits), expected);
}

#[test]
fn arguments_are_written_as_the_server_reads_them() {
    let written = |value: Value, r#type: &Type| {
        let mut out = BytesMut::new();
        let null = Parameter(&value).to_sql(r#type, &mut out).expect("written");
        match null {
            IsNull::Yes => None,
            IsNull::No => Some(String::from_utf8(out.to_vec()).expect("UTF-8")),
        }
    };
    for (value, r#type, expected) in [
        (json!(5), Type::INT4, Some("5")),
        (json!(2.5), Type::NUMERIC, Some("2.5")),
        (json!(true), Type::BOOL, Some("true")),
        (json!("a'b"), Type::TEXT, Some("a'b")),
        (json!({"a": 1}), Type::JSONB, Some(r#"{"a":1}"#)),
        (json!([1, 2]), Type::JSONB, Some("[1,2]")),
        (json!([1, 2]), Type::INT4_ARRAY, Some("{1,2}")),
        (
            json!(["a,b", "c\"d\\", null, "NULL"]),
            Type::TEXT_ARRAY,
            Some(r#"{"a,b","c\"d\\",NULL,"NULL"}"#),
        ),
        (json!([[1], [2]]), Type::INT4_ARRAY, Some("{{1},{2}}")),
        (Value::Null, Type::TEXT, None),
    ] {
        let shown = format!("{value} as {}", r#type.name());
        assert_eq!(written(value, &r#type).as_deref(), expected, "{shown}");
    }
}

#[test]
fn a_list_is_an_array_for_a_domain_over_arrays_too() {
    let domain = |base| {
        Type::new(
            "own".to_owned(),
            1,
            TypeKind::Domain(base),
            "public".to_owned(),
        )
    };
    assert!(is_array(&domain(domain(Type::INT4_ARRAY))));
    assert!(!is_array(&domain(Type::JSONB)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_answered_is_closed() {
    use tokio::io::AsyncReadExt as _;
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let server = server.expect("a port");
    let port = server.local_addr().expect("an address").port();
    let postgres = at(&format!("postgres://me:hunter2@127.0.0.1:{port}/shop")).expect("a URL");
    let question = Question {
        statement: Arc::new(Statement::read("SELECT 1")),
        values: Vec::new(),
        kind: Kind::Free,
    };
    let ended = async {
        let (mut socket, _) = server.accept().await.expect("a connection");
        timeout(Duration::from_secs(60), socket.read_to_end(&mut Vec::new())).await
    };
    let (answer, ended) = tokio::join!(postgres.ask(question), ended);
    let problem = answer.expect_err("no answer").to_string();
    assert_eq!(problem, "the database shop cannot be used at the moment");
    assert!(ended.is_ok(), "the connection is still open");
}
