package place

// Placements as computed by the first version.
const goldenKey Key = 0x6b93c6442768d40

var goldenRanks = []string{
	"node-6 node-1 node-3 node-2 node-5 node-0 node-4",
	"node-6 node-5 node-3 node-4 node-0 node-2 node-1",
	"node-3 node-1 node-4 node-0 node-5 node-2 node-6",
}
