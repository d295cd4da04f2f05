use super::*;

fn read(variables: &[(&str, &str)]) -> Option<ExportSettings> {
    let probe = Probe::of(variables.iter().copied());
    ExportSettings::read(&TelemetryConfig::default(), &probe, ("weather", "1"))
}

fn endpoint(target: &Option<Target>) -> Option<&str> {
    target.as_ref().map(|target| target.endpoint.as_str())
}

#[test]
fn an_endpoint_that_is_none_is_told_of_although_nothing_is_exported() {
    let no_url = "http://collector:4318";
    for (endpoint, problem) in [
        ("localhost:4318", no_url),
        ("collector", no_url),
        ("ftp://x", no_url),
        ("not a url", no_url),
        ("http://me:secret@collector:4318", "a user name or password"),
    ] {
        let settings =
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).expect("something to tell");
        assert_eq!(
            (&settings.traces, &settings.metrics, &settings.logs),
            (&None, &None, &None)
        );
        assert!(settings.lacks_endpoint);
        assert_eq!(settings.doubts.len(), 3, "{:?}", settings.doubts);
        let told = &settings.doubts[0];
        assert!(told.contains(problem) && !told.contains("secret"), "{told}");
    }
}

#[test]
fn nothing_is_exported_that_nobody_asked_for() {
    assert_eq!(read(&[]), None);
    let disabled = [
        ("OTEL_SDK_DISABLED", "TRUE"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
    ];
    assert_eq!(read(&disabled), None);
    let none = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    assert_eq!(read(&none), None);
}

#[test]
fn one_endpoint_serves_all_signals_and_each_may_have_its_own() {
    for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "MCP_OTEL_ENDPOINT"] {
        let settings = read(&[(name, "http://collector:4318/")]).expect("an endpoint");
        assert_eq!(
            endpoint(&settings.traces),
            Some("http://collector:4318/v1/traces")
        );
        assert_eq!(
            endpoint(&settings.metrics),
            Some("http://collector:4318/v1/metrics")
        );
        assert_eq!(
            endpoint(&settings.logs),
            Some("http://collector:4318/v1/logs")
        );
    }
    let settings = read(&[
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "https://traces.example/here",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "authorization=Bearer%20abc, x-team=a",
        ),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
    ])
    .expect("an endpoint");
    let traces = settings.traces.expect("traces");
    assert_eq!(traces.endpoint, "https://traces.example/here");
    assert_eq!(
        traces.headers[0],
        ("authorization".to_owned(), "Bearer abc".to_owned())
    );
    assert_eq!(traces.timeout, Duration::from_millis(2_500));
    assert!(!format!("{traces:?}").contains("abc"));
    assert_eq!((settings.metrics, settings.logs), (None, None));
}

/// Settings of the exporter that exist for all signals and for each signal.
const OF_EXPORTER: [&str; 9] = [
    "ENDPOINT",
    "PROTOCOL",
    "HEADERS",
    "TIMEOUT",
    "COMPRESSION",
    "INSECURE",
    "CERTIFICATE",
    "CLIENT_CERTIFICATE",
    "CLIENT_KEY",
];

/// Every variable that has an effect, with a value that is not its default.
#[test]
fn every_standard_variable_does_what_it_says_or_is_told_to_do_nothing() {
    const BASE: [(&str, &str); 2] = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
    ];
    let of_exporter = |name: &str| {
        ["", "TRACES_", "METRICS_", "LOGS_"]
            .map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}{name}"))
    };
    let plain = read(&BASE);
    let value = |name: &str| match name {
        "OTEL_SDK_DISABLED" => "true",
        "OTEL_SERVICE_NAME" => "other",
        "OTEL_RESOURCE_ATTRIBUTES" => "a=b",
        "OTEL_PROPAGATORS" => "baggage",
        "OTEL_TRACES_SAMPLER" => "always_off",
        "OTEL_TRACES_SAMPLER_ARG" => "0.5",
        name if name.ends_with("_EXPORTER") => "none",
        _ => "77",
    };
    for (name, effect) in VARIABLES {
        let others = BASE.iter().copied().filter(|(other, _)| *other != name);
        let with: Vec<_> = others.chain([(name, value(name))]).collect();
        let found = read(&with);
        match effect {
            Effect::Has => {
                assert_ne!(found, plain, "{name} changes nothing");
                let doubts = found.map(|settings| settings.doubts).unwrap_or_default();
                assert_eq!(doubts, Vec::<String>::new(), "{name}");
            }
            Effect::None(reason) => {
                let mut found = found.expect("an endpoint");
                let reported = std::mem::take(&mut found.doubts);
                assert_eq!(reported, [format!("{name} has no effect: {reason}")]);
                assert_eq!(Some(found), plain, "{name} changes something");
            }
        }
    }
    // Over gRPC, and without a scheme, since only there one of them counts.
    let grpc = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/a"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/b"),
    ];
    let plain = read(&grpc);
    assert!(plain.is_some());
    for name in OF_EXPORTER {
        let value = match name {
            "ENDPOINT" => "http://other:1",
            "PROTOCOL" => "http/protobuf",
            "HEADERS" => "a=b",
            "TIMEOUT" => "77",
            "COMPRESSION" => "gzip",
            "INSECURE" => "true",
            _ => "/elsewhere",
        };
        for variable in of_exporter(name) {
            let others = grpc.iter().copied().filter(|(other, _)| *other != variable);
            let with: Vec<_> = others.chain([(&*variable, value)]).collect();
            assert_ne!(read(&with), plain, "{variable} changes nothing");
        }
    }
}

#[test]
fn every_standard_variable_is_documented() {
    let document = include_str!("../../../../../docs/observability.md");
    for (name, effect) in VARIABLES {
        let row = document
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")))
            .unwrap_or_else(|| panic!("{name} is not in docs/observability.md"));
        let says_none = row.contains("no effect");
        assert_eq!(says_none, effect != Effect::Has, "{row}");
    }
    for name in OF_EXPORTER {
        let name = format!("`OTEL_EXPORTER_OTLP_{name}`");
        assert!(
            document.contains(&name),
            "{name} is not in docs/observability.md"
        );
    }
}

#[test]
fn the_surroundings_say_who_sends() {
    let on_cloud_run = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("K_SERVICE", "weather-service"),
        ("K_REVISION", "weather-00001"),
        ("K_CONFIGURATION", "weather-service"),
        ("OTEL_RESOURCE_ATTRIBUTES", "cloud.region=here"),
    ])
    .expect("an endpoint");
    let resource = &on_cloud_run.resource;
    assert_eq!(resource["cloud.provider"], "gcp");
    assert_eq!(resource["cloud.platform"], "gcp_cloud_run");
    assert_eq!(resource["faas.name"], "weather-service");
    assert_eq!(resource["faas.version"], "weather-00001");
    assert_eq!(resource["cloud.region"], "here");
    // A configured name takes precedence over the detected one.
    assert_eq!(resource["service.name"], "weather");
    let in_a_pod = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("HOSTNAME", "weather-6d4cf-abcde"),
    ])
    .expect("an endpoint");
    let resource = &in_a_pod.resource;
    assert_eq!(resource["k8s.pod.name"], "weather-6d4cf-abcde");
    assert_eq!(resource["service.instance.id"], "weather-6d4cf-abcde");
    assert_eq!(resource["deployment.environment.name"], "production");
    // A host can run several processes, so its name identifies none of them.
    let on_a_host = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("HOSTNAME", "laptop"),
    ])
    .expect("an endpoint");
    assert_eq!(on_a_host.resource["host.name"], "laptop");
    let id = &on_a_host.resource["service.instance.id"];
    let groups: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
    assert_eq!(&id[14..15], "4", "{id}");
    assert!("89ab".contains(&id[19..20]), "{id}");
    assert_eq!(&random_instance_id(), id);
}

#[test]
fn grpc_has_no_path() {
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
    ])
    .expect("an endpoint");
    assert_eq!(endpoint(&settings.traces), Some("http://collector:4317"));
    assert_eq!(
        settings.traces.map(|t| t.protocol),
        Some(ExportProtocol::Grpc)
    );
    assert_eq!(
        endpoint(&settings.metrics),
        Some("http://collector:4317/v1/metrics")
    );
}

#[test]
fn samplers_are_those_of_the_specification() {
    let sampler = |word: &str, share: &str| {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            ("OTEL_TRACES_SAMPLER", word),
            ("OTEL_TRACES_SAMPLER_ARG", share),
        ]);
        settings.expect("an endpoint").sampler
    };
    assert_eq!(sampler("", ""), Sampler::new(true, 1.0));
    assert_eq!(sampler("always_off", ""), Sampler::new(false, 0.0));
    assert_eq!(sampler("traceidratio", "0.25"), Sampler::new(false, 0.25));
    assert_eq!(
        sampler("parentbased_traceidratio", "0.01"),
        Sampler::new(true, 0.01)
    );
    assert_eq!(
        sampler("parentbased_always_off", ""),
        Sampler::new(true, 0.0)
    );
    assert_eq!(sampler("xray", ""), Sampler::new(true, 1.0));
}

#[test]
fn what_means_nothing_is_told() {
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_PROPAGATORS", "tracecontext,b3"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "collector:4318"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
    ])
    .expect("an endpoint");
    assert_eq!(settings.doubts.len(), 4, "{:?}", settings.doubts);
    assert_eq!(settings.logs, None);
    let only_context = Propagation {
        trace_context: true,
        baggage: false,
    };
    assert_eq!(settings.propagation, only_context);
    assert_eq!((settings.spans.queue, settings.spans.batch), (100, 100));
}

#[test]
fn words_are_read_in_any_case_and_exporters_may_be_several() {
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
    let settings = read(&[
        ENDPOINT,
        ("OTEL_TRACES_SAMPLER", "ParentBased_TraceIdRatio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "HTTP/Protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"),
        ("OTEL_PROPAGATORS", "TraceContext"),
        ("OTEL_TRACES_EXPORTER", "OTLP"),
        ("OTEL_METRICS_EXPORTER", "prometheus, otlp"),
        ("OTEL_LOGS_EXPORTER", "console"),
        ("OTEL_SDK_DISABLED", "no"),
    ])
    .expect("an endpoint");
    assert_eq!(settings.sampler, Sampler::new(true, 0.5));
    assert!(settings.traces.is_some_and(|target| target.compressed));
    assert!(settings.metrics.is_some() && settings.logs.is_none());
    assert!(settings.propagation.trace_context);
    for said in [
        "OTEL_SDK_DISABLED",
        "/metrics",
        "standard output",
        "logs are not exported",
    ] {
        let reported = settings.doubts.iter().filter(|doubt| doubt.contains(said));
        assert_eq!(reported.count(), 1, "{said}: {:?}", settings.doubts);
    }
    assert_eq!(settings.doubts.len(), 4, "{:?}", settings.doubts);
}

#[test]
fn a_timeout_of_nothing_is_none_and_what_cannot_be_is_ignored() {
    let config = TelemetryConfig {
        sample: Some(0.25),
        ..TelemetryConfig::default()
    };
    let read = |variables: &[(&str, &str)]| {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        let probe = Probe::of(variables.iter().copied().chain([endpoint]));
        ExportSettings::read(&config, &probe, ("weather", "1")).expect("an endpoint")
    };
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "0"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "18446744073709551615"),
    ]);
    let timeouts = [
        settings.traces.expect("an endpoint").timeout,
        settings.spans.timeout,
        settings.metric_timeout,
    ];
    assert_eq!(timeouts, [NO_LIMIT; 3]);
    // A sampler that is not known leaves what the configuration says in force.
    assert_eq!(read(&[]).sampler, Sampler::new(true, 0.25));
    let unknown = read(&[("OTEL_TRACES_SAMPLER", "xray")]);
    assert_eq!(unknown.sampler, Sampler::new(true, 0.25));
    let alone = read(&[("OTEL_TRACES_SAMPLER_ARG", "0.5")]);
    assert_eq!(alone.sampler, Sampler::new(true, 0.25));
    assert_eq!(alone.doubts.len(), 1, "{:?}", alone.doubts);
    let beyond = read(&[
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "25"),
    ]);
    assert_eq!(beyond.sampler, Sampler::new(false, 1.0));
    assert_eq!(beyond.doubts.len(), 1, "{:?}", beyond.doubts);
}

#[test]
fn resources_say_who_sends() {
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,service.name=one,a=b%2Cc",
        ),
    ])
    .expect("an endpoint");
    assert_eq!(settings.resource["service.name"], "one");
    assert_eq!(settings.resource["service.version"], "1");
    assert_eq!(settings.resource["a"], "b,c");
    let named = read(&[
        ("MCP_OTEL_ENDPOINT", "http://localhost:4318"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=one"),
        ("OTEL_SERVICE_NAME", "two"),
    ]);
    assert_eq!(named.expect("an endpoint").resource["service.name"], "two");
}

#[test]
fn entries_and_headers_that_cannot_be_used_are_told_and_their_text_is_not() {
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization: s3cret, x team=s3cret,x-b=s3cret%0A,x-a=1,",
        ),
        ("OTEL_RESOURCE_ATTRIBUTES", "s3cret,a=b"),
    ])
    .expect("an endpoint");
    for said in [
        "OTEL_EXPORTER_OTLP_HEADERS has an entry that is not of the form key=value",
        "OTEL_EXPORTER_OTLP_HEADERS has a header whose name or value is invalid",
        "OTEL_RESOURCE_ATTRIBUTES has an entry that is not of the form key=value",
        "OTEL_EXPORTER_OTLP_INSECURE is \"1\", which is neither true nor false",
    ] {
        let reported = settings.doubts.iter().filter(|doubt| doubt.contains(said));
        assert_eq!(reported.count(), 1, "{said}: {:?}", settings.doubts);
    }
    assert_eq!(settings.doubts.len(), 4, "{:?}", settings.doubts);
    assert!(!settings.doubts.concat().contains("s3cret"));
    let traces = settings.traces.expect("traces");
    assert_eq!(traces.headers, [("x-a".to_owned(), "1".to_owned())]);
    assert_eq!(settings.resource["a"], "b");
}
