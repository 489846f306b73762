// Package csrf refuses requests that pages of other sites have a browser send.
package csrf
