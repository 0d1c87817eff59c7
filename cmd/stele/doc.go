// Stele is the server and the command line of Stele in one binary: "stele serve" runs a node, and
// the other commands are clients and offline tools.
//
// This package lists the commands, in the order of the help. Each group of commands is a package below
// this one, with a function Commands. All build on package cli. A command's function, such as putCommand,
// returns its cobra.Command: it parses arguments, calls the client or the package that does the work, and
// prints the result. It holds no logic of the database.
//
// # Where the paper is silent
//
// The paper has no command line. Command names follow cbt and the HBase shell where the two agree.
//
// # Invariants
//
//	CM1. Data goes to standard output. Questions, progress, hints and errors go to standard error.
//	CM2. Output to a terminal contains no control character from a table, except with --raw.
//	CM3. An exit code has one meaning in all commands: see cli/exitcode.go.
//	CM4. Every command has a line of help and an example, and accepts --json.
//	CM5. Each setting is one line of the table in config/settings.go. Its flag, its variable, the example
//	    file, stele.yaml(5) and docs/config.md are generated from that table.
package main
