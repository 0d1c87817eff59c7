// Package verify checks the data folders of a node that is not running: "stele check". It verifies all checksums of the lock service's log,
// of the block store and of its logs, and the order of keys in SSTables. It changes nothing, starts no goroutines of its own, and needs no
// other node. The paper has no such check: GFS verifies its chunks.
package verify
