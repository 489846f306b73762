// Package origin tells requests that pages of other sites have a browser send from
// all others.
package origin
