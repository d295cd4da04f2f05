//! Detects the proxy in front of a server by its response headers, for specific advice.

use http::HeaderMap;

/// Kind of proxy between the internet and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyKind {
    Nginx,
    Cloudflare,
    /// Google: Cloud Run, App Engine and load balancers.
    Google,
    /// Amazon: Application Load Balancer, API Gateway, CloudFront.
    Amazon,
    /// Envoy, also in Istio, Contour and Gateway controllers.
    Envoy,
    Azure,
    Caddy,
    Fly,
    Unknown,
}

impl ProxyKind {
    /// From the headers of any answer.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_ascii_lowercase()
        };
        let has = |name: &str| headers.contains_key(name);
        let (server, via) = (text("server"), text("via"));
        if has("cf-ray") || server.contains("cloudflare") {
            Self::Cloudflare
        } else if server.contains("google frontend") || via.contains("google") {
            Self::Google
        } else if server.contains("awselb")
            || has("x-amzn-trace-id")
            || has("x-amzn-requestid")
            || has("x-amz-cf-id")
        {
            Self::Amazon
        } else if has("x-azure-ref") || has("x-ms-request-id") {
            Self::Azure
        } else if server.contains("fly/") || has("fly-request-id") {
            Self::Fly
        } else if server.contains("envoy") || has("x-envoy-upstream-service-time") {
            Self::Envoy
        } else if server.contains("nginx") || server.contains("openresty") {
            Self::Nginx
        } else if server.contains("caddy") || via.contains("caddy") {
            Self::Caddy
        } else {
            Self::Unknown
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Cloudflare => "Cloudflare",
            Self::Google => "a Google load balancer, or Cloud Run",
            Self::Amazon => "an AWS load balancer or gateway",
            Self::Envoy => "Envoy (Istio, Gateway API)",
            Self::Azure => "an Azure front door or gateway",
            Self::Caddy => "Caddy",
            Self::Fly => "Fly",
            Self::Unknown => "an unknown proxy, or none",
        }
    }

    /// Advice against buffered event streams.
    pub(super) fn against_buffering(self) -> Vec<String> {
        self.choose(&[
            (Self::Nginx, "nginx: proxy_buffering off; proxy_cache off; gzip off; in the location of the endpoint, and no proxy_ignore_headers X-Accel-Buffering"),
            (Self::Nginx, "ingress-nginx: nginx.ingress.kubernetes.io/proxy-buffering: \"off\""),
            (Self::Cloudflare, "Cloudflare: no rule that compresses or rewrites text/event-stream; Cache Rules: bypass for the endpoint"),
            (Self::Google, "Google: no Cloud CDN and no compression on the backend service of the endpoint; do not use API Gateway or Cloud Endpoints, which buffer"),
            (Self::Amazon, "AWS: an Application Load Balancer passes streams; API Gateway only with response streaming, and Lambda only with RESPONSE_STREAM (web adapter: AWS_LWA_INVOKE_MODE=response_stream)"),
            (Self::Envoy, "Envoy: no buffer filter (envoy.filters.http.buffer) and no compressor for text/event-stream on the route"),
            (Self::Azure, "Azure: Application Gateway: responseBuffering disabled; Front Door: no compression of text/event-stream; API Management: forward-request buffer-response=\"false\""),
            (Self::Caddy, "Caddy: reverse_proxy { flush_interval -1 }, and no encode for text/event-stream"),
        ])
    }

    /// Advice against streams that are cut off.
    pub(super) fn against_cut_offs(self) -> Vec<String> {
        self.choose(&[
            (Self::Nginx, "nginx: proxy_read_timeout 3600s; proxy_send_timeout 3600s; send_timeout 3600s;"),
            (Self::Nginx, "ingress-nginx: nginx.ingress.kubernetes.io/proxy-read-timeout: \"3600\" and nginx.ingress.kubernetes.io/proxy-send-timeout: \"3600\""),
            (Self::Google, "GKE: BackendConfig spec.timeoutSec: 3600 (Gateway: GCPBackendPolicy spec.default.timeoutSec: 3600); Cloud Run: timeoutSeconds: 3600, or `gcloud run services update SERVICE --timeout=3600`"),
            (Self::Amazon, "ALB: alb.ingress.kubernetes.io/load-balancer-attributes: idle_timeout.timeout_seconds=3600 (default 60); App Runner ends every request after 120 s"),
            (Self::Envoy, "Istio: VirtualService http.timeout: 0s; Gateway API: HTTPRoute rules.timeouts.request: 0s; Envoy: route timeout 0s, stream_idle_timeout 3600s"),
            (Self::Azure, "Azure: Container Apps and App Service end a request after 240 s, which cannot be changed; Application Gateway: requestTimeout 3600; Front Door: originResponseTimeoutSeconds 240"),
            (Self::Cloudflare, "Cloudflare: a stream must send something every 100 s (proxy_read_timeout of an Enterprise plan changes it)"),
            (Self::Caddy, "Caddy: reverse_proxy { stream_timeout 1h }"),
            (Self::Fly, "Fly: a stream must send something every 60 s"),
        ])
    }

    /// Advice against limits of the message size.
    pub(super) fn against_small_bodies(self) -> Vec<String> {
        self.choose(&[
            (Self::Nginx, "nginx: client_max_body_size 4m"),
            (Self::Nginx, "ingress-nginx: nginx.ingress.kubernetes.io/proxy-body-size: 4m"),
            (Self::Google, "Google: Cloud Armor inspects the first 8 KiB of a body only; Cloud Run accepts 32 MiB over HTTP/1"),
            (Self::Amazon, "AWS: API Gateway accepts 10 MiB, a Lambda function 6 MiB behind it and 1 MiB behind a load balancer; AWS WAF: a rule with SizeRestrictions_BODY rejects from 8 KiB on"),
            (Self::Envoy, "Envoy: max_request_bytes of the buffer filter (envoy.filters.http.buffer) and of ext_authz with_request_body"),
            (Self::Azure, "Azure: Application Gateway WAF policy: maxRequestBodySizeInKb (default 128)"),
            (Self::Cloudflare, "Cloudflare: at least 100 MB are accepted; a WAF rule on http.request.body.size may be stricter"),
            (Self::Caddy, "Caddy: request_body { max_size 4MB }"),
        ])
    }

    /// Selects the advice for this proxy, or all advice if the proxy is unknown.
    fn choose(self, all: &[(Self, &str)]) -> Vec<String> {
        let own: Vec<_> = all
            .iter()
            .filter(|(front, _)| *front == self)
            .map(|(_, advice)| (*advice).to_owned())
            .collect();
        if own.is_empty() {
            return all.iter().map(|(_, advice)| (*advice).to_owned()).collect();
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(fields: &[(&'static str, &'static str)]) -> ProxyKind {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, http::HeaderValue::from_static(value));
        }
        ProxyKind::of(&headers)
    }

    #[test]
    fn fronts_are_told_by_what_they_say() {
        for (fields, expected) in [
            (&[("server", "nginx/1.26")][..], ProxyKind::Nginx),
            (
                &[("server", "cloudflare"), ("cf-ray", "1")],
                ProxyKind::Cloudflare,
            ),
            (&[("server", "Google Frontend")], ProxyKind::Google),
            (&[("via", "1.1 google")], ProxyKind::Google),
            (&[("server", "awselb/2.0")], ProxyKind::Amazon),
            (&[("server", "istio-envoy")], ProxyKind::Envoy),
            (&[("x-azure-ref", "x")], ProxyKind::Azure),
            (&[("server", "Fly/1")], ProxyKind::Fly),
            (&[("via", "1.1 Caddy")], ProxyKind::Caddy),
            (&[("server", "uvicorn")], ProxyKind::Unknown),
        ] {
            assert_eq!(front(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn advice_is_for_who_is_there_and_for_everybody_if_nobody_knows() {
        let nginx = ProxyKind::Nginx.against_buffering();
        assert_eq!(nginx.len(), 2);
        assert!(nginx[1].contains("nginx.ingress.kubernetes.io/proxy-buffering"));
        assert!(6 < ProxyKind::Unknown.against_cut_offs().len());
    }
}
