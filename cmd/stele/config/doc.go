// Package config has the settings of a node, and the command config.
//
//   - A Setting is a configuration key: a flag of serve, a STELE_ variable and a line of the file.
//   - A Config is the value and the source of each setting: Load reads flags, the environment, the file and
//     the defaults, in this order of precedence.
//   - Problems are all errors of a configuration, reported together.
//
// Invariant CM5 of the program: each setting is one line of the table in settings.go. Its flag, its variable, the
// example file, stele.yaml(5) and docs/config.md are generated from that table.
package config
