// Package locate returns to clients where rows are: the root of the three levels, and samples of the row keys served here (paper §5.1); and which
// node serves the row of a misrouted request. The latter is found in METADATA, within bounds (guide.go): while METADATA is unreadable,
// refusals name no node. The package starts no goroutine.
package locate
