"use strict";
/* Everything begins; a mark on the document says when it is done. */
girih.startTimeline();
girih.startMoving();
girih.startPointing();
girih.startMemory();
girih.startGraph();
girih.startPanels();
girih.startMeasured();
document.documentElement.dataset.ready = "true";
