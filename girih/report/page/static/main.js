"use strict";
/* Everything begins: the charts when the page is laid out, so that they know their width. */
girih.startTimeline();
girih.startMemory();
girih.startGraph();
girih.startPanels();
document.documentElement.dataset.ready = "true";
