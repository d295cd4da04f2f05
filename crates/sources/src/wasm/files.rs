//! Opening of files in the folders of a component.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::{WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, Host as _, HostDescriptor as _,
    NewTimestamp, OpenFlags, PathFlags,
};

use super::instance::State;

const OPEN_AT: &str = "[method]descriptor.open-at";

/// Returns the name under which `wasmtime-wasi` offers its functions for files. Its last number differs between
/// releases.
fn interface(linker: &Linker<State>) -> wasmtime::Result<String> {
    let mut probe = linker.clone();
    (0..100)
        .map(|patch| format!("wasi:filesystem/types@0.2.{patch}"))
        .find(|name| {
            // The name of a function that is defined cannot be defined again.
            let instance = probe.instance(name);
            let defined = instance.and_then(|mut all| all.func_wrap(OPEN_AT, |_, (): ()| Ok(())));
            defined.is_err()
        })
        .ok_or_else(|| wasmtime::Error::msg("wasmtime-wasi has no functions for files"))
}

/// Replaces the functions that open files by ones that open regular files and folders only. Opening a named pipe or a
/// device can block a thread for ever.
pub(super) fn restrict(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type OpenAt = (
        Resource<Descriptor>,
        PathFlags,
        String,
        OpenFlags,
        DescriptorFlags,
    );
    type SetTimesAt = (
        Resource<Descriptor>,
        PathFlags,
        String,
        NewTimestamp,
        NewTimestamp,
    );
    let name = interface(linker)?;
    linker.allow_shadowing(true);
    let mut interface = linker.instance(&name)?;
    interface.func_wrap_async(
        OPEN_AT,
        |mut store: StoreContextMut<'_, State>, (folder, links, path, create, access): OpenAt| {
            Box::new(async move {
                let mut files = store.data_mut().filesystem();
                let opened = match check(&mut files, &folder, links, &path).await {
                    Ok(()) => files.open_at(folder, links, path, create, access).await,
                    Err(problem) => Err(problem),
                };
                Ok((told(&mut files, opened)?,))
            })
        },
    )?;
    interface.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: StoreContextMut<'_, State>,
         (folder, links, path, read, written): SetTimesAt| {
            Box::new(async move {
                let mut files = store.data_mut().filesystem();
                let set = match check(&mut files, &folder, links, &path).await {
                    Ok(()) => files.set_times_at(folder, links, path, read, written).await,
                    Err(problem) => Err(problem),
                };
                Ok((told(&mut files, set)?,))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Rejects what is neither a regular file nor a folder. A component cannot create anything else.
async fn check(
    files: &mut WasiFilesystemCtxView<'_>,
    folder: &Resource<Descriptor>,
    links: PathFlags,
    path: &str,
) -> FsResult<()> {
    let folder = Resource::new_borrow(folder.rep());
    match files.stat_at(folder, links, path.to_owned()).await {
        Ok(found) => match found.type_ {
            DescriptorType::RegularFile
            | DescriptorType::Directory
            // It is not followed then.
            | DescriptorType::SymbolicLink => Ok(()),
            _ => Err(ErrorCode::NotPermitted.into()),
        },
        // The file may be about to be created. Every other problem is met again.
        Err(_) => Ok(()),
    }
}

/// Returns a result as the component receives it.
fn told<T>(
    files: &mut WasiFilesystemCtxView<'_>,
    result: FsResult<T>,
) -> wasmtime::Result<Result<T, ErrorCode>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(files.convert_error_code(error)?)),
    }
}
