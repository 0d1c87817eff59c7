package cli

import (
	"strconv"

	"github.com/steledb/stele/client"
)

// StillCounting is the reason that their counts of extents are unknown.
const StillCounting = "still counting, after a node has joined or left"

// NodeName returns the name of a node, or its id if it has no name.
func NodeName(n *client.NodeInfo) string { return OrElse(n.Name, n.ID) }

// FormatPercent formats a fraction in percent.
func FormatPercent(fraction float64) Number {
	return Number(strconv.FormatFloat(100*fraction, 'f', 0, 64) + "%")
}
