//! Flushed data survives every cut; unflushed data may be lost; both are seen on real file systems.

use safepoint_testkit::blocks::{
    BLOCK_BYTES, Event, Filesystem, Media, Mounts, Recorder, cuts, in_own_namespace, missing,
};
use std::fs;
use std::process::Command;

fn write(disk: usize, block: u64, text: u8) -> Event {
    Event::Write { disk, offset: block * BLOCK_BYTES as u64, bytes: vec![text; 4 * BLOCK_BYTES] }
}

fn empty_media(folder: &std::path::Path) -> Media {
    let image = folder.join("empty");
    fs::File::create(&image).unwrap().set_len(16 * BLOCK_BYTES as u64).unwrap();
    Media::load(&image).unwrap()
}

#[test]
fn flushed_requests_survive_every_cut_of_their_disk_only() {
    let folder = tempfile::tempdir().unwrap();
    let start = vec![empty_media(folder.path()), empty_media(folder.path())];
    let events =
        [write(0, 0, 1), write(1, 0, 2), Event::Flush { disk: 0 }, write(0, 4, 3), Event::Flush { disk: 1 }];
    let all = cuts(&events, events.len(), 1000, 1);
    let at = |media: &[Media], disk: usize, block: u64| media[disk].read(block * BLOCK_BYTES as u64, 1)[0];
    let states: Vec<_> = all.iter().map(|cut| (cut.done, cut.media(&start, &events))).collect();
    let after = |done: usize| states.iter().filter(move |(at, _)| *at >= done);
    assert!(after(3).all(|(_, media)| at(media, 0, 0) == 1 && at(media, 0, 1) == 1));
    assert!(after(5).all(|(_, media)| at(media, 1, 0) == 2));
    for (done, disk, block) in [(3, 1, 0), (5, 0, 4)] {
        let kept = after(done).filter(|(_, media)| at(media, disk, block) != 0).count();
        assert!(kept > 0 && kept < after(done).count(), "pending requests of disk {disk} survive or not");
    }
    let is_torn = |media: &[Media], disk, first| {
        (first..first + 4).any(|it| at(media, disk, it) != at(media, disk, first))
    };
    let torn =
        states.iter().any(|(_, media)| is_torn(media, 0, 0) || is_torn(media, 1, 0) || is_torn(media, 0, 4));
    assert!(torn, "a request of four blocks arrives in part");
}

#[test]
fn no_state_comes_twice_and_no_more_than_asked_for() {
    let events: Vec<Event> = (0..12).map(|number| write(0, number, 1)).collect();
    assert!(cuts(&events, 12, 1000, 7).len() > 100);
    assert_eq!(cuts(&events, 12, 40, 7).len(), 40);
    // Without a flush the state without any request is the same at each point.
    let all = cuts(&events, 13, 1000, 7);
    assert!(!all.iter().any(|cut| cut.done > 0 && cut.how.ends_with("pending lost")));
}

#[test]
fn media_are_read_and_laid_out_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = empty_media(folder.path());
    media.write(100, &[7; 5000]);
    media.zero(200, 100);
    let image = folder.path().join("image");
    media.lay_out(&image).unwrap();
    let bytes = fs::read(&image).unwrap();
    assert_eq!(bytes.len() as u64, media.len());
    let expected = |at: usize| if (100..200).contains(&at) || (300..5100).contains(&at) { 7 } else { 0 };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    assert_eq!(Media::load(&image).unwrap().read(0, bytes.len()), bytes);
}

/// Checks on a real file system that a synced file survives every cut, and that some cut loses an unsynced
/// one.
fn synced_files_survive(filesystem: Filesystem, test: &str) {
    if let Some(why) = missing(filesystem) {
        eprintln!("skipped: {test}: {why}");
        return;
    }
    if !in_own_namespace(test).unwrap() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["mounted", "fuse"] {
        fs::create_dir(path(name)).unwrap();
    }
    let (images, places) = (vec![path("image")], vec![path("mounted")]);
    filesystem.make(&images[0]).unwrap();
    let start = Media::load_all(&images).unwrap();
    let recorder = Recorder::start(&path("fuse"), start.clone()).unwrap();
    let mounts = Mounts::mount(filesystem, &recorder.images(), &places).unwrap();
    let script = "echo first > first && sync . first && echo second > second";
    let ended = Command::new("sh").args(["-ec", script]).current_dir(&places[0]).status().unwrap();
    assert!(ended.success());
    let acknowledged = recorder.position();
    mounts.unmount().unwrap();
    let events = recorder.finish().unwrap();
    assert!(acknowledged > 0 && acknowledged < events.len(), "{acknowledged} of {}", events.len());
    let (mut tried, mut lost) = (0, 0);
    for cut in cuts(&events, acknowledged, 60, 3).iter().filter(|cut| cut.done >= acknowledged) {
        for (media, image) in cut.media(&start, &events).iter().zip(&images) {
            media.lay_out(image).unwrap();
        }
        let mounts = Mounts::mount(filesystem, &images, &places).unwrap();
        assert_eq!(fs::read(path("mounted/first")).unwrap(), b"first\n", "{cut:?}");
        lost += u32::from(fs::read(path("mounted/second")).unwrap_or_default() != b"second\n");
        tried += 1;
        mounts.unmount().unwrap();
    }
    eprintln!(
        "{}: {} requests, {tried} cuts after the sync, {lost} without the other file",
        filesystem.name(),
        events.len()
    );
    assert!(lost > 0 && lost < tried);
}

#[test]
fn a_synced_file_survives_on_ext4() {
    synced_files_survive(Filesystem::Ext4, "blocks::a_synced_file_survives_on_ext4");
}

#[test]
fn a_synced_file_survives_on_xfs() {
    synced_files_survive(Filesystem::Xfs, "blocks::a_synced_file_survives_on_xfs");
}

#[test]
fn a_synced_file_survives_on_btrfs() {
    synced_files_survive(Filesystem::Btrfs, "blocks::a_synced_file_survives_on_btrfs");
}
