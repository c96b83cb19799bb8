//! Packages: parameters that actions share, and other names for them.

use super::*;
use serde_json::json;
use squeezy_openwhisk::{
    action::Pairs,
    package::{self, Package, PackageBody},
};

/// An action as it is called.
#[derive(Clone, Debug)]
pub struct Callable {
    /// The action.
    pub action: Arc<Action>,
    /// The packages that its name led through. Parameters of the later go before those of the earlier.
    pub packages: Vec<Arc<Package>>,
}

impl From<Arc<Action>> for Callable {
    fn from(action: Arc<Action>) -> Self {
        Self { action, packages: Vec::new() }
    }
}

impl Callable {
    /// What each call gets, besides its own arguments.
    pub fn parameters(&self) -> Pairs {
        let own = self.action.body.parameters.as_deref().unwrap_or_default();
        merged(self.packages.iter().map(|package| &*package.parameters).chain([own]))
    }
}

/// All of these parameters; the later go before the earlier.
pub fn merged<'a>(all: impl Iterator<Item = &'a [Pair]>) -> Pairs {
    let by_key: BTreeMap<_, _> = all.flatten().map(|pair| (&*pair.key, pair)).collect();
    by_key.into_values().cloned().collect()
}

impl Service {
    /// Creates or changes a package atomically, even if the client stops waiting. Returns it in OpenWhisk's
    /// format.
    pub async fn put_package(
        self: &Arc<Self>,
        name: QualifiedName,
        body: PackageBody,
        overwrite: bool,
    ) -> Result<Value, ServiceError> {
        package::check_name(&name.name).map_err(ServiceError::Invalid)?;
        let binding = body.binding(&name.namespace).map_err(ServiceError::Invalid)?;
        let service = self.clone();
        let asker = self.tenancy(&name.namespace)?;
        to_the_end(async move {
            let mut state = service.changing.of(&name.namespace).await?;
            // It may have been deleted meanwhile, and made anew.
            if !asker.is_there() {
                return Err(ServiceError::NotFound);
            }
            let earlier = state.packages().get(&name);
            if earlier.is_some() && !overwrite {
                return Err(ServiceError::Exists);
            }
            if earlier.is_none() {
                service.may_have_package(&state, &name.namespace)?;
            }
            if let Some(provider) = &binding {
                check_binding(provider, earlier, &state)?;
            }
            let package = Package::change(body, binding, earlier, now_ms());
            service.stays_acyclic(&name, &package)?;
            state.put_package(&name, package.clone()).await?;
            lock(&service.packages).insert(name.clone(), Arc::new(package));
            service.describe_package(&name).ok_or(ServiceError::NotFound)
        })
        .await
    }

    /// Removes a package without actions. Completes even if the client stops waiting. Returns the package as it
    /// was.
    pub async fn delete_package(
        self: &Arc<Self>,
        name: QualifiedName,
    ) -> Result<Value, ServiceError> {
        let service = self.clone();
        to_the_end(async move {
            let mut state = service.changing.of(&name.namespace).await?;
            let described = service.describe_package(&name).ok_or(ServiceError::NotFound)?;
            let count = service.in_package(&name).len();
            if count > 0 {
                let problem = format!("Package not empty (contains {count} actions)");
                return Err(ServiceError::Conflict(problem));
            }
            state.remove_package(&name).await?;
            lock(&service.packages).remove(&name);
            Ok(described)
        })
        .await
    }

    /// A package in OpenWhisk's format, with its actions and all parameters that they get from it.
    pub fn describe_package(&self, name: &QualifiedName) -> Option<Value> {
        let package = self.package(name)?;
        let provider = package.binding.as_ref().and_then(|provider| self.package(provider));
        let below = provider.iter().map(|provider| &*provider.parameters);
        let parameters = merged(below.chain([&*package.parameters]));
        let mut described = package.describe(name);
        described["parameters"] = json!(parameters);
        let actions = self.in_package(package.binding.as_ref().unwrap_or(name));
        let brief = |action: &Value| {
            json!({
                "name": action["name"],
                "version": action["version"],
                "annotations": action["annotations"],
            })
        };
        described["actions"] = actions.iter().map(brief).collect();
        described["feeds"] = json!([]);
        Some(described)
    }

    /// All packages of a namespace in OpenWhisk's format, without parameters and actions, sorted by name.
    pub fn describe_packages(&self, namespace: &Namespace) -> Vec<Value> {
        let packages = lock(&self.packages);
        let own = packages.iter().filter(|(name, _)| name.namespace == *namespace);
        own.map(|(name, package)| package.describe(name)).collect()
    }

    /// All actions of a package in OpenWhisk's format, sorted by name.
    pub fn in_package(&self, package: &QualifiedName) -> Vec<Value> {
        self.describe_actions_if(|name| name.package().as_ref() == Some(package))
    }

    /// The name of the action that a name leads to, and the packages on the way.
    pub fn resolve(
        &self,
        name: &QualifiedName,
    ) -> Result<(QualifiedName, Vec<Arc<Package>>), ServiceError> {
        resolve_with(name, |package| self.package(package)).ok_or(ServiceError::NotFound)
    }

    pub(super) fn package(&self, name: &QualifiedName) -> Option<Arc<Package>> {
        lock(&self.packages).get(name).cloned()
    }
}

/// What [`Service::resolve`] would say if there were these packages; `None` if the name leads nowhere.
pub(super) fn resolve_with(
    name: &QualifiedName,
    find: impl Fn(&QualifiedName) -> Option<Arc<Package>>,
) -> Option<(QualifiedName, Vec<Arc<Package>>)> {
    let Some(package_name) = name.package() else { return Some((name.clone(), Vec::new())) };
    let package = find(&package_name)?;
    let Some(provider_name) = &package.binding else { return Some((name.clone(), vec![package])) };
    // A binding to a binding cannot be made, but its provider may have been made anew as one.
    let provider = find(provider_name).filter(|provider| provider.binding.is_none())?;
    Some((provider_name.inside(name.entity()), vec![provider, package]))
}

/// Checks that there can be an action with this name: if it names a package, there has to be one.
pub(super) fn check_place(name: &QualifiedName, state: &State) -> Result<(), ServiceError> {
    let Some(package) = name.package() else { return Ok(()) };
    match state.packages().get(&package) {
        None => Err(ServiceError::NotFound),
        Some(Package { binding: Some(_), .. }) => {
            Err(ServiceError::Invalid("Operation not permitted on package binding.".to_owned()))
        }
        Some(_) => Ok(()),
    }
}

fn check_binding(
    provider: &QualifiedName,
    earlier: Option<&Package>,
    state: &State,
) -> Result<(), ServiceError> {
    if earlier.is_some_and(|earlier| earlier.binding.is_none()) {
        let problem = "Resource is a package and cannot be converted into a binding.".to_owned();
        return Err(ServiceError::Conflict(problem));
    }
    let invalid = |problem: &str| Err(ServiceError::Invalid(problem.to_owned()));
    match state.packages().get(provider) {
        None => invalid("Binding references a package that does not exist."),
        Some(Package { binding: Some(_), .. }) => {
            invalid("Cannot bind to another package binding.")
        }
        Some(_) => Ok(()),
    }
}
