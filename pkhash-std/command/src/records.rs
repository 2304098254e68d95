//! Reading whole tables.

use pkhash_std::{Error, TableFile, Value};

use crate::fail::Result;

/// Calls `each` with all keys and values of a table. What is printed or counted of a damaged table would pass
/// for good ever after, so the checksums of each partition are compared before its records are read.
///
/// # Errors
/// The first damage; the records before it were sound.
pub(crate) fn for_each_record<'t>(
    file: &'t TableFile,
    mut each: impl FnMut(&'t [u8], Value<'t>) -> Result<()>,
) -> Result<()> {
    let table = file.table();
    let fail = |source| Error::Table { path: Some(file.name().to_owned()), source };
    let mut found = 0;
    for p in 0..table.footer().partitions() {
        table.verify_checksums(p).map_err(fail)?;
        for record in table.iter_partition(p) {
            let (key, value) = record.map_err(fail)?;
            found += 1;
            each(key, value)?;
        }
    }
    // Good checksums, but written wrongly.
    let footer = table.footer();
    if found != footer.keys() {
        return Err(fail(pkhash_core::Error::Corrupt {
            what: "number of keys that were read",
            offset: footer.file_len(),
            expected: footer.keys(),
            found,
        })
        .into());
    }
    Ok(())
}
