//! The directory for compiled plugins, which are kept between starts.

use std::path::{Path, PathBuf};

/// `COFFERDAM_CACHE`, else `cofferdam` in `XDG_CACHE_HOME`, else `cache` in the data directory.
/// Relative values of the variables are ignored.
pub(crate) fn directory(data: &Path) -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    choose(absolute("COFFERDAM_CACHE"), absolute("XDG_CACHE_HOME"), data)
}

fn choose(own: Option<PathBuf>, user: Option<PathBuf>, data: &Path) -> PathBuf {
    own.or_else(|| user.map(|cache| cache.join("cofferdam"))).unwrap_or_else(|| data.join("cache"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::choose;

    #[test]
    fn own_variable_wins_over_the_user_and_the_data_directory() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(choose(path("/a"), path("/b"), Path::new("d")), Path::new("/a"));
        assert_eq!(choose(None, path("/b"), Path::new("d")), Path::new("/b/cofferdam"));
        assert_eq!(choose(None, None, Path::new("d")), Path::new("d/cache"));
    }
}
