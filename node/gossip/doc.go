// Package gossip tells who is in the cluster, where, and what they offer.
package gossip
