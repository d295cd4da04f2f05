//! Detection of the cloud and its products.
//!
//! Platforms are detected by variables that they set. Regions, projects and credentials are no evidence, because
//! developers set them on their own machines.

use super::{Detection, Probe};

/// A cloud provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// Google Cloud.
    Gcp,
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Another provider.
    Other,
}

/// A platform that runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Platform {
    /// Google Cloud Run.
    CloudRun,
    /// Google Cloud Run functions.
    CloudFunctions,
    /// Google App Engine.
    AppEngine,
    /// Google Kubernetes Engine.
    KubernetesEngine,
    /// A virtual machine of Google Compute Engine.
    ComputeEngine,
    /// AWS Lambda.
    Lambda,
    /// AWS App Runner.
    AppRunner,
    /// Amazon ECS on Fargate.
    Fargate,
    /// Amazon ECS on EC2 instances.
    Ecs,
    /// Amazon EKS.
    Eks,
    /// A virtual machine of Amazon EC2.
    Ec2,
    /// Azure Container Apps.
    ContainerApps,
    /// Azure App Service.
    AppService,
    /// Azure Functions.
    AzureFunctions,
    /// Azure Kubernetes Service.
    Aks,
    /// A virtual machine of Azure.
    AzureVm,
    /// Fly.io.
    Fly,
    /// Render.
    Render,
    /// Railway.
    Railway,
    /// Heroku.
    Heroku,
    /// Vercel.
    Vercel,
    /// Netlify.
    Netlify,
    /// Cloudflare.
    Cloudflare,
}

use Platform as P;

/// Variables that only one platform sets, in order of precedence.
const MARKS: [(&str, Platform); 19] = [
    ("AWS_LAMBDA_FUNCTION_NAME", P::Lambda),
    ("FUNCTION_TARGET", P::CloudFunctions),
    ("K_SERVICE", P::CloudRun),
    ("CLOUD_RUN_JOB", P::CloudRun),
    ("CLOUD_RUN_WORKER_POOL", P::CloudRun),
    ("GAE_SERVICE", P::AppEngine),
    ("FUNCTIONS_WORKER_RUNTIME", P::AzureFunctions),
    ("CONTAINER_APP_NAME", P::ContainerApps),
    ("CONTAINER_APP_JOB_NAME", P::ContainerApps),
    ("WEBSITE_SITE_NAME", P::AppService),
    ("VERCEL", P::Vercel),
    ("NETLIFY", P::Netlify),
    ("CF_PAGES", P::Cloudflare),
    ("RENDER", P::Render),
    ("RAILWAY_ENVIRONMENT_ID", P::Railway),
    ("RAILWAY_PROJECT_ID", P::Railway),
    ("RAILWAY_ENVIRONMENT", P::Railway),
    ("FLY_APP_NAME", P::Fly),
    ("DYNO", P::Heroku),
];

impl Platform {
    /// Returns the official name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CloudRun => "Google Cloud Run",
            Self::CloudFunctions => "Google Cloud Run functions",
            Self::AppEngine => "Google App Engine",
            Self::KubernetesEngine => "Google Kubernetes Engine",
            Self::ComputeEngine => "Google Compute Engine",
            Self::Lambda => "AWS Lambda",
            Self::AppRunner => "AWS App Runner",
            Self::Fargate => "Amazon ECS on Fargate",
            Self::Ecs => "Amazon ECS",
            Self::Eks => "Amazon EKS",
            Self::Ec2 => "Amazon EC2",
            Self::ContainerApps => "Azure Container Apps",
            Self::AppService => "Azure App Service",
            Self::AzureFunctions => "Azure Functions",
            Self::Aks => "Azure Kubernetes Service",
            Self::AzureVm => "an Azure virtual machine",
            Self::Fly => "Fly.io",
            Self::Render => "Render",
            Self::Railway => "Railway",
            Self::Heroku => "Heroku",
            Self::Vercel => "Vercel",
            Self::Netlify => "Netlify",
            Self::Cloudflare => "Cloudflare",
        }
    }

    /// Returns the provider.
    pub fn provider(self) -> Provider {
        match self {
            Self::CloudRun
            | Self::CloudFunctions
            | Self::AppEngine
            | Self::KubernetesEngine
            | Self::ComputeEngine => Provider::Gcp,
            Self::Lambda | Self::AppRunner | Self::Fargate | Self::Ecs | Self::Eks | Self::Ec2 => {
                Provider::Aws
            }
            Self::ContainerApps
            | Self::AppService
            | Self::AzureFunctions
            | Self::Aks
            | Self::AzureVm => Provider::Azure,
            Self::Fly
            | Self::Render
            | Self::Railway
            | Self::Heroku
            | Self::Vercel
            | Self::Netlify
            | Self::Cloudflare => Provider::Other,
        }
    }

    /// Returns `cloud.provider` and `cloud.platform` of the OpenTelemetry conventions, if defined.
    pub fn telemetry_names(self) -> (Option<&'static str>, Option<&'static str>) {
        let provider = match self.provider() {
            Provider::Gcp => Some("gcp"),
            Provider::Aws => Some("aws"),
            Provider::Azure => Some("azure"),
            Provider::Other if self == Self::Heroku => Some("heroku"),
            Provider::Other => None,
        };
        let platform = match self {
            Self::CloudRun => "gcp_cloud_run",
            Self::CloudFunctions => "gcp_cloud_functions",
            Self::AppEngine => "gcp_app_engine",
            Self::KubernetesEngine => "gcp_kubernetes_engine",
            Self::ComputeEngine => "gcp_compute_engine",
            Self::Lambda => "aws_lambda",
            Self::AppRunner => "aws_app_runner",
            Self::Fargate | Self::Ecs => "aws_ecs",
            Self::Eks => "aws_eks",
            Self::Ec2 => "aws_ec2",
            Self::ContainerApps => "azure.container_apps",
            Self::AppService => "azure.app_service",
            Self::AzureFunctions => "azure.functions",
            Self::Aks => "azure.aks",
            Self::AzureVm => "azure.vm",
            _ => return (provider, None),
        };
        (provider, Some(platform))
    }

    /// Returns true if the platform routes requests to the process, so that standard input is not used.
    pub fn is_managed(self) -> bool {
        !matches!(self, Self::ComputeEngine | Self::Ec2 | Self::AzureVm)
    }

    /// Returns true if instances start and stop with the load.
    pub fn is_serverless(self) -> bool {
        matches!(
            self,
            Self::CloudRun
                | Self::CloudFunctions
                | Self::Lambda
                | Self::AzureFunctions
                | Self::Vercel
                | Self::Netlify
                | Self::Cloudflare
        )
    }
}

/// Detects the platform.
pub(super) fn detect(probe: &Probe) -> Option<Detection<Platform>> {
    if let Some(host) = probe.variable("KUBERNETES_SERVICE_HOST") {
        return of_kubernetes(probe, host);
    }
    if let Some((name, _)) = probe.variables("AWSAPPRUNNER").next() {
        return Some(Detection::new(P::AppRunner, name));
    }
    for (mark, platform) in MARKS {
        if let Some(value) = probe.variable(mark)
            && says_so(mark, value)
        {
            return Some(Detection::new(platform, format!("{mark}={value}")));
        }
    }
    for (value, platform) in [("AWS_ECS_FARGATE", P::Fargate), ("AWS_ECS_EC2", P::Ecs)] {
        if probe.variable("AWS_EXECUTION_ENV") == Some(value) {
            let evidence = format!("AWS_EXECUTION_ENV={value}");
            return Some(Detection::new(platform, evidence));
        }
    }
    if probe.variable("ECS_CONTAINER_METADATA_URI_V4").is_some() {
        return Some(Detection::new(P::Ecs, "ECS_CONTAINER_METADATA_URI_V4"));
    }
    of_machine(probe, [P::ComputeEngine, P::Ec2, P::AzureVm])
}

/// Detects the Kubernetes provider, by its workload identity or else by the machine.
fn of_kubernetes(probe: &Probe, host: &str) -> Option<Detection<Platform>> {
    const IDENTITIES: [(&str, &str, Platform); 3] = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "eks.amazonaws.com", P::Eks),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "169.254.170.23",
            P::Eks,
        ),
        ("AZURE_FEDERATED_TOKEN_FILE", "azure", P::Aks),
    ];
    for (name, part, platform) in IDENTITIES {
        if probe
            .variable(name)
            .is_some_and(|value| value.contains(part))
        {
            return Some(Detection::new(platform, name));
        }
    }
    if host.ends_with(".azmk8s.io") {
        return Some(Detection::new(
            P::Aks,
            format!("KUBERNETES_SERVICE_HOST={host}"),
        ));
    }
    of_machine(probe, [P::KubernetesEngine, P::Eks, P::Aks])
}

/// Detects the machine's manufacturer from the firmware: Google, Amazon or Microsoft.
fn of_machine(
    probe: &Probe,
    [google, amazon, microsoft]: [Platform; 3],
) -> Option<Detection<Platform>> {
    /// The asset tag of all Azure machines, which distinguishes them from other Hyper-V machines.
    const AZURE: &str = "7783-7084-3265-9085-8269-3286-77";
    const FOLDER: &str = "/sys/class/dmi/id";

    let vendor = probe.read(&format!("{FOLDER}/sys_vendor"))?;
    let (platform, file) = match vendor.trim() {
        "Google" => {
            let product = probe.read(&format!("{FOLDER}/product_name"))?;
            (product.trim() == "Google Compute Engine").then_some((google, "product_name"))?
        }
        "Amazon EC2" => (amazon, "sys_vendor"),
        "Microsoft Corporation" => {
            let tag = probe.read(&format!("{FOLDER}/chassis_asset_tag"))?;
            (tag.trim() == AZURE).then_some((microsoft, "chassis_asset_tag"))?
        }
        _ => return None,
    };
    Some(Detection::new(platform, format!("{FOLDER}/{file}")))
}

/// Returns true if the value is one that the platform sets. Four of the names are also used for other purposes, with
/// a boolean value.
fn says_so(mark: &str, value: &str) -> bool {
    match mark {
        "VERCEL" | "NETLIFY" | "CF_PAGES" | "RENDER" => {
            matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true")
        }
        _ => true,
    }
}
