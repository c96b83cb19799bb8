//! What the configuration says: functions that exist from the start, and what may change while the daemon runs.

use super::*;

/// Why a function cannot be served, and its path.
type FunctionProblem = (PathBuf, ServiceError);

impl Service {
    /// Adds functions under their own names, sharing a VM. All of them belong to the namespace that is always there.
    pub async fn add_functions(&self, entries: &[FunctionEntry]) -> Result<(), FunctionProblem> {
        let _changing = self.changing.of_operator().await;
        let added = self.prepare(entries, &|name| self.action(name).is_some()).await?;
        for (action, entry) in added {
            self.publish(action, entry).await;
        }
        Ok(())
    }

    /// From now on, and for what there is already, what of the new configuration may change while the daemon runs
    /// applies ([`Config::changed`]). Calls of a function that has changed go to its successor; waits for that as whoever
    /// changes an action does. After an error, nothing has changed.
    pub async fn reconfigure(&self, new: &Config) -> Result<(), FunctionProblem> {
        // No action is added meanwhile.
        let changing = self.changing.of_operator().await;
        let earlier = self.config();
        let config = Arc::new(earlier.changed(new));
        let mut going = FunctionEntry::sharing_a_vm(&earlier.functions);
        let mut changed = Vec::new();
        for group in FunctionEntry::sharing_a_vm(&config.functions) {
            match going.iter().position(|other| *other == group) {
                // Who is named twice is new the second time, and refused.
                Some(at) => drop(going.swap_remove(at)),
                None => changed.push(group),
            }
        }
        let goes = |entry: &FunctionEntry| going.iter().flatten().any(|other| other == entry);
        let (going, staying): (Vec<_>, Vec<_>) =
            lock(&self.configured).clone().into_iter().partition(|(_, entry)| goes(entry));
        let mut names: BTreeSet<QualifiedName> =
            staying.into_iter().map(|(name, _)| name).collect();
        // With the new limits, like those that are added later.
        *lock(&self.config) = config.clone();
        let mut added = Vec::new();
        for group in &changed {
            match self.prepare(group, &|name| names.contains(name)).await {
                Ok(more) => {
                    names.extend(more.iter().map(|(action, _)| action.name.clone()));
                    added.extend(more);
                }
                Err(problem) => {
                    added.iter().for_each(|(action, _)| self.discard(action));
                    *lock(&self.config) = earlier;
                    return Err(problem);
                }
            }
        }

        self.node.keep_empty_vms(Some(config.vm_idle));
        for action in self.actions() {
            let minimum = minimum::wanted(&action.body, &action.image.function).unwrap_or(0);
            let limits = limits(&config, &action.image, minimum);
            // It fails for one whose VM has just gone.
            let _ = self.node.update_function(action.index, limits).await;
        }
        self.space.set_most(config.actions_disk_bytes);
        self.store.set_limits(config.store_limits(&self.bodies));
        let mut rolls = Vec::new();
        for (action, entry) in added {
            rolls.extend(self.publish(action, entry).await);
        }
        for (name, _) in going.into_iter().filter(|(name, _)| !names.contains(name)) {
            lock(&self.configured).remove(&name);
            self.actions.remove_if(|action| action.name == name && action.pinned.is_none());
        }
        drop(changing);
        Roll::wait(rolls).await;
        Ok(())
    }

    /// Adds functions to the node, in a VM that they share, without making them callable. After an error there is
    /// nothing of them.
    async fn prepare(
        &self,
        entries: &[FunctionEntry],
        is_taken: &(dyn Fn(&QualifiedName) -> bool + Sync),
    ) -> Result<Vec<(Arc<Action>, FunctionEntry)>, FunctionProblem> {
        let Some(first) = entries.first() else { return Ok(Vec::new()) };
        let mut images: Vec<FunctionImage> = Vec::new();
        for entry in entries {
            let at = |error| (entry.path.clone(), error);
            let image = FunctionImage::find(&entry.path, &self.files);
            let mut image = image.map_err(|error| at(invalid(error)))?;
            entry.settings.apply(&mut image.function);
            image.function.network.get_or_insert(self.config().network);
            let name = &image.function.name;
            if is_taken(&QualifiedName::guest(name))
                || images.iter().any(|other| other.function.name == *name)
            {
                let problem = format!("the function {name:?} exists already: names must be unique");
                return Err(at(ServiceError::Invalid(problem)));
            }
            images.push(image);
        }
        let name = first.vm.as_ref().unwrap_or(&images[0].function.name);
        let vm = self.add_vm(&Namespace::guest(), name, &images).await;
        let vm = vm.map_err(|error| (first.path.clone(), error))?;
        let mut added: Vec<(Arc<Action>, FunctionEntry)> = Vec::new();
        for (entry, image) in entries.iter().zip(images) {
            let name = QualifiedName::guest(&image.function.name);
            let body = ActionBody::default();
            let change = Change {
                body,
                image,
                pinned: None,
                origin: None,
                code: None,
                revision: 1,
                updated_ms: now_ms(),
            };
            match self.add_to(vm, name, change).await {
                Ok(action) => added.push((action, entry.clone())),
                Err(error) => {
                    added.iter().for_each(|(action, _)| self.discard(action));
                    return Err((entry.path.clone(), error));
                }
            }
        }
        Ok(added)
    }

    /// Makes a function callable, in place of its predecessor, unless there is an action of its name that was made
    /// over the API.
    async fn publish(&self, action: Arc<Action>, entry: FunctionEntry) -> Option<Roll> {
        lock(&self.configured).insert(action.name.clone(), entry);
        let is_made = |name| self.action(name).is_some_and(|other| other.pinned.is_some());
        if is_made(&action.name) || self.sequence(&action.name).is_some() {
            self.discard(&action);
            None
        } else {
            self.replace(action).await
        }
    }

    fn discard(&self, action: &Action) {
        self.node.remove_function(action.index);
    }
}
