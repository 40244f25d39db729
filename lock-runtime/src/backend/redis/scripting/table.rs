//! The macros for entries of the script table: [`script!`](script), [`renewal!`](renewal), and [`source!`](source) for
//! the few scripts whose number of keys the caller decides.

/// Makes the [`Source`](super::Source) of `lua/NAME.lua`: its text after the fragments of `lua/lib` that it uses,
/// joined at compile time.
///
/// A shortcut for the common case may be in `lua/shortcut/NAME.lua`. It ends the script before the other fragments cost
/// anything. The fragments that the shortcut itself uses are named before it.
///
/// The flags must be on the very first line of the whole text, so they are named here, too. A test compares flags and
/// fragments with the script's header.
macro_rules! source {
    ($name:literal, $($flags:literal,)? $(shortcut after [$($before:literal),*],)? [$($fragment:literal),*]) => {{
        static SOURCE: Source = Source::new(
            $name,
            concat!(
                "#!lua", $(" flags=", $flags,)? "\n",
                $($(lua!("lib/", $before),)* lua!("shortcut/", $name),)?
                $(lua!("lib/", $fragment),)*
                lua!("", $name),
            ),
        );
        &SOURCE
    }};
}
pub(crate) use source;

/// Includes the text of a Lua file.
macro_rules! lua {
    ($folder:literal, $name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/backend/redis/scripting/lua/",
            $folder,
            $name,
            ".lua"
        ))
    };
}
pub(crate) use lua;

/// Makes one entry of the script table: a struct with the values of one call, and its [`Script`](super::Script).
///
/// `keys` and `args` are sent in their order. They have the names of the script's header, which adds a `?` to optional
/// names. `local` fields are not sent. The block parses the reply's items.
macro_rules! script {
    (
        $name:literal, $($flags:literal,)?
        $(shortcut after [$($before:literal),*],)? [$($fragment:literal),*]
        $(#[$doc:meta])*
        struct $Script:ident<$life:lifetime> {
            $(local { $($(#[$local_doc:meta])* $local:ident: $Local:ty),* })?
            keys { $($(#[$key_doc:meta])* $key:ident: $Key:ty),* }
            args { $($(#[$arg_doc:meta])* $arg:ident: $Arg:ty),* }
        }
        |$this:pat_param, $items:pat_param| -> $Reply:ty $read:block
    ) => {
        $(#[$doc])*
        #[cfg_attr(fuzzing, derive(Default))]
        pub(crate) struct $Script<$life> {
            $($($(#[$local_doc])* pub(crate) $local: $Local,)*)?
            $($(#[$key_doc])* pub(crate) $key: $Key,)*
            $($(#[$arg_doc])* pub(crate) $arg: $Arg,)*
        }

        impl<$life> Script for $Script<$life> {
            type Reply = $Reply;

            fn source() -> &'static Source {
                source!($name, $($flags,)? $(shortcut after [$($before),*],)? [$($fragment),*])
            }

            fn keys(&self) -> usize {
                0 $(+ redis::ToRedisArgs::num_of_args(&self.$key))*
            }

            fn write(&self, command: &mut redis::Cmd) {
                command$(.arg(&self.$key))*$(.arg(&self.$arg))*;
            }

            fn read(&self, reply: redis::Value) -> Option<Result<$Reply, Fault>> {
                let $this = self;
                let $items = Items::of(reply)?;
                $read
            }

            #[cfg(test)]
            fn shape() -> [String; 2] {
                use crate::backend::redis::scripting::shape_of;
                [
                    shape_of(&[$((stringify!($key), stringify!($Key))),*]),
                    shape_of(&[$((stringify!($arg), stringify!($Arg))),*]),
                ]
            }
        }
    };
}
pub(crate) use script;

/// Makes a script that renews any number of holds: a struct that has, for each hold, its keys, the name of its holder
/// there, and its ttl in ms.
macro_rules! renewal {
    (
        $name:literal, [$($fragment:literal),*]
        struct $Script:ident<$life:lifetime> {
            keys { $($key:ident: $Key:ty),* }
            arg { $arg:ident: $Arg:ty }
        }
    ) => {
        pub(crate) struct $Script<$life> {
            pub(crate) items: &$life [($($Key,)* $Arg, i64)],
        }

        impl Script for $Script<'_> {
            type Reply = Vec<Renewed>;

            fn source() -> &'static Source {
                source!($name, "allow-oom", [$($fragment),*])
            }

            fn keys(&self) -> usize {
                self.items.len() * [$(stringify!($key)),*].len()
            }

            fn write(&self, command: &mut redis::Cmd) {
                for ($($key,)* _, _) in self.items {
                    command$(.arg($key))*;
                }
                for (.., $arg, ttl) in self.items {
                    command.arg($arg).arg(ttl);
                }
            }

            fn read(&self, reply: redis::Value) -> Option<Result<Vec<Renewed>, Fault>> {
                read_renewals(self.items.len(), reply)
            }

            #[cfg(test)]
            fn shape() -> [String; 2] {
                let keys = match [$(stringify!($key)),*].as_slice() {
                    [one] => format!("{one}..."),
                    several => format!("({})...", several.join(", ")),
                };
                [keys, format!("({}, ttl_ms)...", stringify!($arg))]
            }
        }
    };
}
pub(crate) use renewal;
