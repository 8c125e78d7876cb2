//! Access control lists and file capabilities, in the encoding of Linux extended attributes.
//!
//! In: untrusted values. Out: their permissions, or `None` if the kernel would refuse the value.

/// Attribute with the ACL of a file or directory.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute with the default ACL, which new entries of a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Attribute with the capabilities of a program.
pub const CAPABILITY: &[u8] = b"security.capability";

/// ACL version in an attribute (`linux/posix_acl_xattr.h`).
const ACL_VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Id of entries without a named user or group.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Permissions of an ACL that correspond to a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acl {
    owner: u16,
    group: u16,
    mask: Option<u16>,
    other: u16,
}

impl Acl {
    /// Parses an ACL. Returns `None` for a value that the kernel refuses (`posix_acl_valid`).
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (head, entries) = value.split_first_chunk::<HEAD_BYTES>()?;
        if u32::from_le_bytes(*head) != ACL_VERSION || entries.len() % ENTRY_BYTES != 0 {
            return None;
        }
        let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
        let (mut named, mut last) = (false, 0);
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let [tag, perm] = [0, 2].map(|at| u16::from_le_bytes([entry[at], entry[at + 1]]));
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let is_named = matches!(tag, USER | GROUP);
            // The order of the tags is fixed; only named entries repeat.
            if perm > 7 || is_named == (id == NO_ID) || tag < last || (tag == last && !is_named) {
                return None;
            }
            let slot = match tag {
                USER_OBJ => &mut owner,
                GROUP_OBJ => &mut group,
                MASK => &mut mask,
                OTHER => &mut other,
                USER | GROUP => &mut None,
                _ => return None,
            };
            *slot = Some(perm);
            named |= is_named;
            last = tag;
        }
        let acl = Self { owner: owner?, group: group?, mask, other: other? };
        (mask.is_some() || !named).then_some(acl)
    }

    /// Returns the nine permission bits that `stat` shows for a file with this ACL: the mask replaces the
    /// group bits.
    pub fn mode_bits(self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Returns the nine permission bits that grant no more than this ACL, for targets without ACLs.
    pub fn plain_bits(self) -> u16 {
        self.owner << 6 | (self.group & self.mask.unwrap_or(7)) << 3 | self.other
    }

    /// Returns true if a mode cannot express it. The kernel stores no other access ACL.
    pub fn is_extended(self) -> bool {
        self.mask.is_some()
    }
}

/// Returns the ACL equivalent to these permission bits. Set as the access ACL, it replaces any other ACL
/// together with the mode.
pub fn minimal(mode: u16) -> Vec<u8> {
    let mut value = ACL_VERSION.to_le_bytes().to_vec();
    for (tag, shift) in [(USER_OBJ, 6), (GROUP_OBJ, 3), (OTHER, 0)] {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&(mode >> shift & 7).to_le_bytes());
        value.extend_from_slice(&NO_ID.to_le_bytes());
    }
    value
}

/// Updates an ACL to match permission bits, like `chmod`: the group bits become the mask.
pub(crate) fn set_mode_bits(value: &mut [u8], mode: u16) {
    for entry in value.get_mut(HEAD_BYTES..).unwrap_or_default().chunks_exact_mut(ENTRY_BYTES) {
        let shift = match u16::from_le_bytes([entry[0], entry[1]]) {
            USER_OBJ => 6,
            MASK => 3,
            OTHER => 0,
            _ => continue,
        };
        entry[2] = (mode >> shift & 7) as u8;
    }
}

/// Adds permissions for the owner to an ACL, like `chmod`.
pub(crate) fn add_owner_bits(value: &mut [u8], bits: u16) {
    if let Some(entry) = value.get_mut(HEAD_BYTES..HEAD_BYTES + ENTRY_BYTES)
        && entry[0] == USER_OBJ as u8
    {
        entry[2] |= (bits & 7) as u8;
    }
}

/// Returns true for file capabilities in a form that the kernel accepts (`linux/capability.h`, revisions 2
/// and 3).
pub fn is_capability(value: &[u8]) -> bool {
    const EFFECTIVE: u32 = 1;
    let Some(head) = value.first_chunk::<4>() else { return false };
    matches!((u32::from_le_bytes(*head) & !EFFECTIVE, value.len()), (0x0200_0000, 20) | (0x0300_0000, 24))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = ACL_VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// Owner rw, user 1000 rwx, group r, mask rwx, other none: 0670 as a mode.
    pub(crate) fn sample() -> Vec<u8> {
        acl(&[
            (USER_OBJ, 6, NO_ID),
            (USER, 7, 1000),
            (GROUP_OBJ, 4, NO_ID),
            (MASK, 7, NO_ID),
            (OTHER, 0, NO_ID),
        ])
    }

    #[test]
    fn the_mask_stands_for_the_group_and_the_plain_mode_is_never_wider() {
        let sample = Acl::parse(&sample()).unwrap();
        assert_eq!((sample.mode_bits(), sample.plain_bits()), (0o670, 0o640));
        assert!(sample.is_extended());
        let narrow = acl(&[
            (USER_OBJ, 7, NO_ID),
            (GROUP_OBJ, 6, NO_ID),
            (GROUP, 7, 5),
            (MASK, 5, NO_ID),
            (OTHER, 1, NO_ID),
        ]);
        assert_eq!(Acl::parse(&narrow).map(|acl| (acl.mode_bits(), acl.plain_bits())), Some((0o751, 0o741)));
        let plain = Acl::parse(&minimal(0o4751)).unwrap();
        assert_eq!((plain.mode_bits(), plain.plain_bits(), plain.is_extended()), (0o751, 0o751, false));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_no_acl() {
        let good = [(USER_OBJ, 6, NO_ID), (GROUP_OBJ, 4, NO_ID), (MASK, 7, NO_ID), (OTHER, 0, NO_ID)];
        assert!(Acl::parse(&acl(&good)).is_some());
        for at in 0..good.len() {
            let without: Vec<_> =
                good.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, e)| *e).collect();
            assert_eq!(Acl::parse(&acl(&without)).is_some(), at == 2, "without entry {at}");
            let mut wrong = good;
            wrong[at].1 = 8;
            assert!(Acl::parse(&acl(&wrong)).is_none());
            wrong = good;
            wrong[at].2 = 0;
            assert!(Acl::parse(&acl(&wrong)).is_none());
            wrong = good;
            wrong[at].0 = 0x40;
            assert!(Acl::parse(&acl(&wrong)).is_none());
            let twice: Vec<_> =
                good.iter().flat_map(|e| vec![*e; if e == &good[at] { 2 } else { 1 }]).collect();
            assert!(Acl::parse(&acl(&twice)).is_none());
        }
        let unmasked = [(USER_OBJ, 6, NO_ID), (USER, 7, 5), (GROUP_OBJ, 4, NO_ID), (OTHER, 0, NO_ID)];
        assert!(Acl::parse(&acl(&unmasked)).is_none(), "a named entry requires a mask");
        assert!(Acl::parse(&sample()[..sample().len() - 1]).is_none());
        assert!(Acl::parse(&[&[1], &sample()[1..]].concat()).is_none());
        assert!(Acl::parse(b"").is_none());
    }

    #[test]
    fn capabilities_are_of_revision_two_or_three() {
        let value = |revision: u8, flags: u8, len: usize| {
            let mut value = vec![0; len];
            (value[0], value[3]) = (flags, revision);
            value
        };
        assert!(is_capability(&value(2, 0, 20)) && is_capability(&value(2, 1, 20)));
        assert!(is_capability(&value(3, 1, 24)));
        for (revision, flags, len) in [(2, 0, 24), (3, 0, 20), (1, 0, 12), (2, 2, 20), (4, 0, 24), (0, 0, 4)]
        {
            assert!(!is_capability(&value(revision, flags, len)), "{revision} {flags} {len}");
        }
    }
}
