//! Making or continuing a directory: the request of a program when it starts or restarts.
//!
//! ```text
//!                     nothing, or an empty directory    a directory with epochs    something else
//!   create            made                              refused                    refused
//!   append            refused                           continued                  refused
//!   auto              made                              continued                  refused
//! ```
//!
//! A directory whose first epoch is not complete counts as empty: all three modes take it.

use std::path::Path;

use ascot_io::Disk;

use crate::error::{IndexError, Result};
use crate::format::layout::{Layout, Named, Scheme};
use crate::format::manifest::Manifest;
use crate::format::names::MANIFEST;
use crate::format::shape::Shape;
use crate::write::coordinator::Coordinator;
use crate::write::request::LayoutRequest;

/// Whether a directory is made or continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenMode {
    /// Make it.
    #[default]
    Create,
    /// Continue it after its last complete epoch.
    Append,
    /// Continue it if it exists, make it otherwise.
    Auto,
}

impl Named for OpenMode {
    const NAMED: &'static [(&'static str, Self)] =
        &[("create", Self::Create), ("append", Self::Append), ("auto", Self::Auto)];
}

/// How a directory is opened for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Whether it is made or continued.
    pub mode: OpenMode,
    /// Number of epochs to keep of a directory that is continued; `None`: all complete ones.
    pub rollback: Option<u64>,
    /// The requested layout.
    pub request: LayoutRequest,
}

impl Opening {
    /// Whether the directory is continued.
    ///
    /// # Errors
    /// Epochs to keep although there is no directory.
    pub fn goes_on(&self, path: &Path) -> Result<bool> {
        let goes_on = match self.mode {
            OpenMode::Create => false,
            OpenMode::Append => true,
            OpenMode::Auto => path.join(MANIFEST).symlink_metadata().is_ok(),
        };
        match self.rollback {
            Some(epochs) if epochs > 0 && !goes_on => Err(IndexError::Request(format!(
                "{} is new, so it has no {epochs} epochs to roll back to: name the directory that belongs to \
                 this checkpoint",
                path.display()
            ))),
            _ => Ok(goes_on),
        }
    }

    /// The manifest to continue from, for `writers` processes that own at most `max_owned` partitions each.
    ///
    /// # Errors
    /// A request that contradicts the directory; more epochs to keep than there are.
    pub fn go_on(&self, mut manifest: Manifest, writers: u32, max_owned: u32) -> Result<Manifest> {
        self.request.check_same(&manifest.layout)?;
        if let Some(epochs) = self.rollback {
            manifest.roll_back(epochs)?;
        }
        let shape = self.next_shape(&manifest.layout, writers, max_owned);
        manifest.reshape(shape);
        Ok(manifest)
    }

    /// The requested number of partitions. Otherwise one for each process if it was so before, or the same number as
    /// before, limited by what the processes can own.
    fn next_shape(&self, there: &Layout, writers: u32, max_owned: u32) -> Shape {
        let max = writers.saturating_mul(max_owned);
        let partitions = self.request.partitions.unwrap_or(match there.partitions {
            one_each if one_each == there.writers && max_owned == 1 => writers,
            others => others.min(max),
        });
        if there.scheme == Scheme::Records && partitions == there.partitions {
            // Writers of this scheme have no logs of their own.
            return there.shape();
        }
        Shape { partitions, writers }
    }

    /// Makes or opens the directory as its coordinator.
    ///
    /// # Errors
    /// Those of [`Coordinator::create`], [`Coordinator::append`] and [`Coordinator::roll_back`].
    pub fn coordinate(
        &self,
        disk: &Disk,
        path: &Path,
        layout: &Layout,
        goes_on: bool,
    ) -> Result<Coordinator> {
        if !goes_on {
            return Coordinator::create(disk, path, layout.clone());
        }
        let mut coordinator = Coordinator::append(disk, path)?;
        if let Some(epochs) = self.rollback {
            coordinator.roll_back(epochs)?;
        }
        coordinator.reshape(layout.shape());
        Ok(coordinator)
    }
}
