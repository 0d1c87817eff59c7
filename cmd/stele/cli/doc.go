// Package cli is what all commands of Stele share: the state of a command line, its output, the forms of
// its arguments, and its errors.
//
// # Nouns
//
//   - An App is the state that all commands share: streams, global flags, and properties of the
//     terminal. Run runs one command line.
//   - A Group is a section of the help, with its commands.
//   - A Fault is an error with its exit code and hint. FaultOf maps errors of other packages to
//     faults.
//   - A Grid is a table of output.
//   - A Progress is a bar or lines about long-running work.
//
// # JSON
//
// The output of --json is a stable interface, which golden files in testdata check (clitest.Golden). Names
// in JSON are tags of the type that has the data, such as a result in client/api. A command has a type of
// its own only where the output has another shape.
//
// # Goroutines
//
//	goroutine     started by      ends when                          owns
//	ticker line   StartTicker     its stop is called, which joins    the last line of the
//	                              it                                 terminal
//	progress bar  Progress.Start  Progress.Stop, which joins it      the bar
//
// # Invariants
//
// CM1 to CM3 of the program: see the comment of cmd/stele.
package cli
