//! URLs of every sort. The input has three lines: the text before the password, the rest of the password, and the text
//! after it. No error may repeat the password, nor may an address that is shown.

const SECRET: &str = "hunter2";

pub fn run(input: &str) {
    let mut lines = input.split('\n');
    let [before, password, after] = [(); 3].map(|()| lines.next().unwrap_or_default());
    // The fuzzer learns the secret and also puts it into other parts, such as a host's name, where it may be shown.
    if [before, password, after]
        .iter()
        .any(|part| part.contains(SECRET))
    {
        return;
    }
    let url = format!("{before}{SECRET}{password}{after}");
    match lock_runtime::fuzz::url(&url) {
        Err(why) => assert!(!why.contains(SECRET), "{url}: {why}"),
        Ok(shown) => assert!(
            !is_password(before, password, after) || !shown.contains(SECRET),
            "{url}: {shown}"
        ),
    }
}

/// Returns whether the secret stands where a URL has a password, and not, say, in a host's name.
fn is_password(before: &str, password: &str, after: &str) -> bool {
    let plain = |text: &str| !text.contains(['/', '?', '#', '@', '&']);
    let login = before
        .split_once("://")
        .is_some_and(|(_, user)| user.contains(':') && plain(user));
    let option = ["?pass=", "&pass=", "?sentinel_pass=", "&sentinel_pass="];
    let given = before.contains('?') && option.iter().any(|option| before.ends_with(option));
    plain(password)
        && ((login && after.starts_with('@'))
            || (given && matches!(after.chars().next(), None | Some('&'))))
}
