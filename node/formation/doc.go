// Package formation makes a fresh node part of exactly one cluster.
package formation
