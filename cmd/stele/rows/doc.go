// Package rows has the commands that read and write rows: put, get, scan, count, delete, incr, cas,
// import, export, watch and load.
//
//   - A selection holds the flags that select cells, a span those that select rows.
//   - A rowWriter prints rows: as JSON, as plain lines, or for a terminal.
//
// No goroutines, except those of the progress of package cli and of the loader.
package rows
